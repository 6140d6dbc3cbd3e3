"""Which cases there are: networks, formats, precisions and kinds, in one fixed order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dev.corpus.kinds import FORMATS, KINDS, Kind
from dev.corpus.nets import Net
from dev.corpus.nets import net as net_of

__all__ = ["FORMATS", "PRECISIONS", "Case", "case", "cases", "quick"]

PRECISIONS = ("fp32", "fp16", "w8", "w8a8")

#: Seeds and widths that are converted honestly; the first of them is also damaged.
_NETS = {
    "digits": ((0, 12), (1, 12), (2, 16), (3, 8)),
    "topics": ((0, 32), (1, 32), (2, 16)),
    "pairs": ((0, 32), (1, 32), (2, 48)),
    "voice": ((0, 24), (1, 24), (2, 16), (3, 32)),
    "segments": ((0, 8), (1, 8), (2, 12)),
    "boxes": ((0, 12), (1, 12), (2, 16)),
}


@dataclass(frozen=True)
class Case:
    """One artifact to be judged.

    Attributes:
        net: Name of the network that it says it is.
        format: Its format.
        precision: Its precision.
        kind: What is wrong with it; "honest": nothing.
        severity: Place in the kind's sweep.
    """

    net: str
    format: str
    precision: str
    kind: str = "honest"
    severity: int = 0

    @property
    def name(self) -> str:
        """E.g. "digits_s0_w12/onnx-fp32/scale-wrong/2"."""
        return f"{self.net}/{self.format}-{self.precision}/{self.kind}/{self.severity}"

    @property
    def of(self) -> Net:
        """Its network."""
        return net_of(self.net)

    @property
    def value(self) -> object:
        """The severity itself."""
        return KINDS[self.kind].sweep[self.severity]


def case(name: str) -> Case:
    """The case of a name."""
    net, cell, kind, severity = name.split("/")
    format, _, precision = cell.partition("-")
    return Case(net, format, precision, kind, int(severity))


def nets(tasks: Sequence[str] = ()) -> list[Net]:
    """All networks, by task."""
    return [
        Net(task, *each)
        for task, held in _NETS.items()
        if not tasks or task in tasks
        for each in held
    ]


def cases(tasks: Sequence[str] = ()) -> list[Case]:
    """All cases: every network honestly, and of each task's first one every kind's sweep.

    What tells most comes first: both ends of every sweep, then what lies between, then the honest
    conversions of the other networks.
    """
    made = [Case(net.name, f, p) for net in nets(tasks) for f in FORMATS for p in PRECISIONS]
    for task in dict.fromkeys(net.task for net in nets(tasks)):
        first = Net(task, *_NETS[task][0]).name
        for kind in KINDS.values():
            if kind.place != "honest" and task in kind.tasks:
                made += _swept(first, task, kind)
    return sorted(made, key=_rank)  # stable: networks stay together


def _rank(case: Case) -> int:
    last = len(KINDS[case.kind].sweep) - 1
    if case.kind == "honest":
        return 0 if case.of.seed == 0 else 2
    return 0 if case.severity in (0, last) else 1


def _swept(net: str, task: str, kind: Kind) -> Iterator[Case]:
    """Every severity in one format and precision, which over the tasks take turns."""
    roll = int.from_bytes(hashlib.sha256(kind.name.encode()).digest()[:4], "big")
    turn = roll + list(_NETS).index(task)
    formats = kind.formats if kind.every_format else (kind.formats[turn % len(kind.formats)],)
    precision = kind.precisions[turn % len(kind.precisions)]
    for severity in range(len(kind.sweep)):
        for format in formats:
            yield Case(net, format, precision, kind.name, severity)


def quick() -> list[Case]:
    """A few of each task, in the formats and precisions that are quick to make."""
    found = []
    for task in _NETS:
        net = Net(task, *_NETS[task][0]).name
        found += [
            Case(net, "onnx", "fp32"),
            Case(net, "onnx", "w8"),
            Case(net, "onnx", "fp32", "signs-flipped", 0),
        ]
    return found
