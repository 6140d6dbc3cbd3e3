"""A session under the source's signature, whatever sizes and integer types its file is fixed to.

A file may take int32 where the source took int64, one sample where the source took a batch, and a
few fixed lengths (buckets) where the source took any. `Adapter` runs such a file with feeds of the
source: it converts integers, splits batches, pads to the smallest bucket that fits, and cuts the
padding off the answers again. An input is padded as its processing declares; with zeros where a
probe showed that the source allows them (`Signature.padded`), and never an empty row of an input
that must have none (`Signature.nonempty`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from edgeserve.backends.session import Session
from edgeserve.errors import BackendError
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.tensors import IO, Signature, TensorSpec

Arrays = dict[str, np.ndarray]

#: The size of each named dimension.
_Sizes = Mapping[str, int]


class _TensorBinding(NamedTuple):
    """One input or output: its name outside and inside, and the axes that the file fixes.

    ``axes`` holds (axis, name of the dynamic dimension) pairs, the batch axis left out; ``scalar``
    says that the file has one axis for what has none outside.
    """

    outer: str
    inner: str
    dtype: str
    axes: tuple[tuple[int, str], ...]
    scalar: bool


class Adapter:
    """Runs a session with feeds of the source's signature.

    Args:
        session: What to run; it stays the caller's to close.
        signature: The source's.
        padding: For each input that may be padded, the step that says how
            (`edgeserve.types.processing.Processing.padding`).
    """

    def __init__(
        self, session: Session, signature: Signature, padding: Mapping[str, Tokenize] | None = None
    ) -> None:
        self._session = session
        self._padding = dict(padding or {})
        self._zeros = frozenset(signature.padded)
        self._nonempty = frozenset(signature.nonempty)
        self._batch = _fixed_batch(signature, session.io)
        named = {dim for spec in session.io.inputs for dim in spec.shape if isinstance(dim, str)}
        free = named | {signature.batch_dim}
        pairs = zip(signature.inputs, session.io.inputs, strict=True)
        self._inputs = tuple(_bind(*pair, free) for pair in pairs)
        pairs = zip(signature.outputs, session.io.outputs, strict=True)
        self._outputs = tuple(_bind(*pair, free) for pair in pairs)
        self._buckets = [_sizes(self._inputs, io) for io in session.buckets]
        same = (session.io.inputs, session.io.outputs) == (signature.inputs, signature.outputs)
        self.run = session.run if same else self._adapted

    @property
    def session(self) -> Session:
        """The session that runs."""
        return self._session

    def takes(self, feed: Mapping[str, np.ndarray]) -> bool:
        """Whether a feed of the signature's shapes can be made to fit the file."""
        try:
            self._check_rows(feed, self._bucket(_named_sizes(self._inputs, feed)))
        except BackendError:
            return False
        return all(self._fits(spec, feed) for spec in self._session.io.inputs)

    def _fits(self, spec: TensorSpec, feed: Mapping[str, np.ndarray]) -> bool:
        """Whether sizes that the signature fixes too are those of the file."""
        fit = next(fit for fit in self._inputs if fit.inner == spec.name)
        adapted = {axis for axis, _ in fit.axes} | ({0} if self._batch else set())
        if fit.scalar:
            return feed[fit.outer].shape == ()
        pairs = enumerate(zip(feed[fit.outer].shape, spec.shape, strict=True))
        return all(
            axis in adapted or isinstance(dim, str) or size == dim for axis, (size, dim) in pairs
        )

    def _adapted(self, feed: Mapping[str, np.ndarray]) -> Arrays:
        given = {fit.inner: _integers(feed[fit.outer], fit) for fit in self._inputs}
        for fit in self._inputs:
            if fit.scalar:
                given[fit.inner] = given[fit.inner].reshape(1)
        sizes = _named_sizes(self._inputs, feed)
        bucket = self._bucket(sizes)
        self._check_rows(feed, bucket)
        for fit in self._inputs:
            given[fit.inner] = self._padded(given[fit.inner], fit, bucket)
        found = self._in_pieces(given)
        return {fit.outer: self._cut(found[fit.inner], fit, sizes, bucket) for fit in self._outputs}

    def _bucket(self, sizes: _Sizes) -> _Sizes:
        """The smallest fixed sizes that hold ``sizes``."""
        padded = {
            name for fit in self._inputs if fit.outer in self._padding for _, name in fit.axes
        } | self._zeros
        for bucket in self._buckets:
            if all(
                size == bucket[name] or (size < bucket[name] and name in padded)
                for name, size in sizes.items()
            ):
                return bucket
        raise BackendError(
            "EDGE-BACKEND-020",
            f"sizes {dict(sizes)}",
            wanted=f"one of the sizes that the file is fixed to: {self._buckets}",
            got="none that holds them",
            hint="give inputs of such a size, or an artifact of a format with dynamic sizes",
        )

    def _check_rows(self, feed: Mapping[str, np.ndarray], bucket: _Sizes) -> None:
        """Refuse an empty row that would be filled up: what is added would reach the answers."""
        for fit in self._inputs:
            array = feed[fit.outer]
            for axis, name in fit.axes if fit.outer in self._nonempty else ():
                if array.shape[axis] < bucket[name] and not array.any(axis).all():
                    raise BackendError(
                        "EDGE-BACKEND-022",
                        f"input {fit.outer!r}",
                        got="a row of zeros",
                        wanted=f"rows with a number other than 0, or size {bucket[name]}"
                        f" for {name!r}",
                        hint="leave such rows out, give one of the file's own sizes"
                        f" ({[each[name] for each in self._buckets]}), or use onnx",
                    )

    def _padded(self, array: np.ndarray, fit: _TensorBinding, bucket: _Sizes) -> np.ndarray:
        for axis, name in fit.axes:
            lack = bucket[name] - array.shape[axis]
            if lack:
                step = self._padding.get(fit.outer)
                left = step is not None and step.padding == "left"
                widths = [(0, 0)] * array.ndim
                widths[axis] = (lack, 0) if left else (0, lack)
                array = np.pad(array, widths, constant_values=step.pad_id if step else 0)
        return array

    def _cut(
        self, array: np.ndarray, fit: _TensorBinding, sizes: _Sizes, bucket: _Sizes
    ) -> np.ndarray:
        """Take the padding off an answer again."""
        left = any(step.padding == "left" for step in self._padding.values())
        for axis, name in fit.axes:
            if name in sizes and sizes[name] != bucket[name]:
                start = bucket[name] - sizes[name] if left and name not in self._zeros else 0
                array = array.take(range(start, start + sizes[name]), axis)
        return array

    def _in_pieces(self, feed: Arrays) -> Arrays:
        """Run a batch in pieces of the file's own size; the last one is filled up."""
        size, run = self._batch, self._session.run
        rows = next(iter(feed.values())).shape[0] if size else 0
        if not size or rows == size:
            return run(feed)
        answers = []
        for start in range(0, rows, size):
            piece = {name: array[start : start + size] for name, array in feed.items()}
            answers.append(run(fill_rows(piece, size)))
        return {n: np.concatenate([a[n] for a in answers])[:rows] for n in answers[0]}


def fill_rows(feed: Mapping[str, np.ndarray], size: int) -> Arrays:
    """A feed with its last row repeated until its first axis has ``size`` rows."""
    return {
        name: np.concatenate([array, *[array[-1:]] * (size - len(array))])
        if len(array) < size
        else array
        for name, array in feed.items()
    }


def _fixed_batch(signature: Signature, io: IO) -> int:
    """The file's batch size where the signature's is dynamic and the file's is not, else 0."""
    first = io.inputs[0].shape[0] if io.inputs and io.inputs[0].shape else ""
    return first if signature.batch_dim is not None and isinstance(first, int) else 0


def _bind(outer: TensorSpec, inner: TensorSpec, free: set[str | None]) -> _TensorBinding:
    axes = tuple(
        (axis, dim)
        for axis, dim in enumerate(outer.shape)
        if isinstance(dim, str) and dim not in free
    )
    scalar = outer.shape == () and inner.shape == (1,)
    return _TensorBinding(outer.name, inner.name, inner.dtype, axes, scalar)


def _sizes(inputs: tuple[_TensorBinding, ...], io: IO) -> dict[str, int]:
    """What a signature of the file fixes the named dimensions to."""
    shapes = {spec.name: spec.shape for spec in io.inputs}
    return {name: int(shapes[fit.inner][axis]) for fit in inputs for axis, name in fit.axes}


def _named_sizes(
    inputs: tuple[_TensorBinding, ...], feed: Mapping[str, np.ndarray]
) -> dict[str, int]:
    return {name: feed[fit.outer].shape[axis] for fit in inputs for axis, name in fit.axes}


def _integers(array: np.ndarray, fit: _TensorBinding) -> np.ndarray:
    """Truth values and integers to integers that hold them; else the session refuses it."""
    if array.dtype == fit.dtype or array.dtype.kind not in "biu" or "int" not in fit.dtype:
        return array
    info = np.iinfo(fit.dtype)
    if array.size and (array.min() < info.min or array.max() > info.max):
        raise BackendError(
            "EDGE-BACKEND-021",
            f"input {fit.outer!r}",
            wanted=f"values that fit {fit.dtype}",
            got=f"{array.min()} to {array.max()}",
            hint=f"this file takes {fit.dtype}: give smaller numbers, or use another format",
        )
    return array.astype(fit.dtype)
