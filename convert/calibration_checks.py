"""What calibration samples must be: finite, of the model's shapes, unlike each other, and apart.

A range that NaN has been through is NaN; a range of one sample seen 64 times is that sample's; and
an input that a model is both calibrated and judged with makes the judgement too kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from edgeserve.data import Feed, Reader, input_sha256
from edgeserve.data.reader import fits
from edgeserve.errors import QuantizeError
from edgeserve.types.samples import Sample
from edgeserve.types.tensors import Signature


def check_feed(index: int, name: str, feed: Feed, signature: Signature) -> None:
    """Compare one feed with the source's inputs, value by value.

    Args:
        index: Number of the sample, from 0.
        name: Its id.
        feed: Named arrays, batch axis included.
        signature: What they must fit.

    Raises:
        QuantizeError: EDGE-QUANTIZE-003 NaN or infinity, -004 another name, dtype or shape.
    """
    thing = f"calibration sample {index} ({name})"
    names = [spec.name for spec in signature.inputs]
    if sorted(feed) != sorted(names):
        raise _unfit(thing, f"inputs {names}", f"{list(feed)}")
    for spec in signature.inputs:
        array = feed[spec.name]
        if str(array.dtype) != spec.dtype and spec.dtype != "string":
            raise _unfit(f"{thing} input {spec.name!r}", spec.dtype, str(array.dtype))
        if not fits(array.shape, spec, signature):
            wanted, got = f"shape {list(spec.shape)}", f"shape {list(array.shape)}"
            raise _unfit(f"{thing} input {spec.name!r}", wanted, got)
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise QuantizeError(
                "EDGE-QUANTIZE-003",
                f"{thing} input {spec.name!r}",
                wanted="finite numbers",
                got="NaN or infinity",
                hint="repair this sample, or take it out of the data",
            )


def _unfit(thing: str, wanted: str, got: str) -> QuantizeError:
    hint = "give inputs as the model takes them; `edgeserve inspect` shows its signature"
    return QuantizeError("EDGE-QUANTIZE-004", thing, wanted=wanted, got=got, hint=hint)


class SampleDiversity:
    """Whether samples differ at all, from each other and within themselves.

    Attributes:
        count: How many feeds were added.
    """

    def __init__(self, signature: Signature) -> None:
        self.count = 0
        self._floats = [s.name for s in signature.inputs if s.dtype.startswith(("float", "uint8"))]
        self._seen: set[str] = set()
        self._range: tuple[float, float] | None = None

    def add(self, feed: Feed) -> None:
        """Take note of a feed that `check_feed` passed."""
        self.count += 1
        self._seen.add(_digest(feed))
        values = [feed[name] for name in self._floats if feed[name].size]
        bounds = [float(end) for array in values for end in (array.min(), array.max())]
        low, high = self._range or (np.inf, -np.inf)
        if bounds:
            self._range = min(low, *bounds), max(high, *bounds)

    def check(self) -> None:
        """Refuse samples that show nothing.

        Raises:
            QuantizeError: EDGE-QUANTIZE-005.
        """
        got = ""
        if len(self._seen) < 2:
            got = f"{self.count} times the same one"
        elif self._range is not None and self._range[0] == self._range[1]:
            got = f"nothing but the number {self._range[0]:g}"
        if got:
            where = "calibration samples"
            wanted = "inputs that differ"
            hint = "give real inputs: ranges measured on these would hold for nothing else"
            raise QuantizeError("EDGE-QUANTIZE-005", where, wanted=wanted, got=got, hint=hint)


def _digest(feed: Feed) -> str:
    digest = hashlib.sha256()
    for name in sorted(feed):
        digest.update(f"{name}{feed[name].shape}".encode())
        digest.update(np.ascontiguousarray(feed[name]).tobytes())
    return digest.hexdigest()


def drop_evaluation_duplicates(
    chosen: Sequence[Sample], judged: Sequence[Sample], reader: Reader
) -> tuple[Sample, ...]:
    """See that no chosen input is also one of those that the model will be judged with.

    Copies of one input, each its own group because the data names no groups, are left out here;
    where the data does name groups, they contradict the copies.

    Args:
        chosen: To calibrate with.
        judged: The other half.
        reader: Reads both.

    Returns:
        ``chosen``, without copies of what is judged.

    Raises:
        QuantizeError: EDGE-QUANTIZE-006, the same bytes under two group names.
    """
    twins = _duplicates(chosen, judged, reader)
    for sample, twin in twins.items():
        if _has_named_group(chosen, sample) or _has_named_group(judged, twin):
            raise QuantizeError(
                "EDGE-QUANTIZE-006",
                f"{sample} and {twin}",
                wanted="one group for one input",
                got="the same bytes in two groups",
                hint="give both the same group, or remove one: else a model is judged with what "
                "it was calibrated on",
            )
        print(f"calibration: {sample} is left out, it equals {twin} of the evaluation half")
    return tuple(sample for sample in chosen if sample.id not in twins)


def _has_named_group(samples: Iterable[Sample], name: str) -> bool:
    """Whether the data itself said which group a sample belongs to."""
    return any(sample.id == name != sample.group for sample in samples)


def _duplicates(
    chosen: Sequence[Sample], judged: Sequence[Sample], reader: Reader
) -> dict[str, str]:
    """For each chosen sample that is also judged, the judged one's id."""
    sizes = {_size(sample) for sample in chosen}
    prints = {sample.id: input_sha256(reader.read(sample)) for sample in chosen}
    wanted = set(prints.values())
    found: dict[str, str] = {}
    for sample in judged:
        if _size(sample) in sizes:  # else the bytes differ, and need not be read
            digest = input_sha256(reader.read(sample))
            if digest in wanted:
                found.setdefault(digest, sample.id)
    return {name: found[digest] for name, digest in prints.items() if digest in found}


def _size(sample: Sample) -> int:
    """Bytes of a file, characters of a text; 0 for every row."""
    if sample.text is not None:
        return len(sample.text)
    if sample.row is not None or sample.path is None:
        return 0
    return Path(sample.path).stat().st_size
