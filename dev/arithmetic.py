"""Which arithmetic each format computes as PyTorch does, and docs/reference/arithmetic.md of it.

Operators are Python expressions over edge values; all of a dtype are outputs of one program, which
is converted once per format and compared with eager PyTorch.

    python -m dev.arithmetic --write docs/reference/arithmetic.md
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.backends.torch.export.export import ExportOptions, export_module
from edgeserve.backends.torch.program.inspect import graph_sha256, weights_of
from edgeserve.backends.torch.program.io import write_program
from edgeserve.errors import EdgeError
from edgeserve.types.source import Exported, Source

FORMATS = ("onnx", "tflite", "coreml")

#: The largest relative error of a quotient or a power that still counts as its last bit.
_LAST_BIT = 3e-7

M = 1 << 24
_DIVIDENDS = (0, 1, -1, 7, -60, 3599, 3600, -3601, M - 1, M, M + 1, -M - 1, 1700002799, -1700002799)
_DIVIDENDS += (1999999439, 2**31 - 1, 1 - 2**31)
_DIVISORS = (1, -1, 2, 3, -7, 10, 1009, 3600, -3600, M + 1, M - 1, 2**31 - 1)
_WIDE = (2**31, -(2**31) - 1, 2**40 + 1, 2**53 + 1, -(2**53) - 1, 2**62 + 12345, 1764547199999999)
_WIDE_DIVISORS = (3, -7, 86400000, 2**31 + 7, 1 - 2**33, 2**53 - 1)
_FLOATS = (0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 0.1, 0.3, -0.3, 1.0, -1.0, 3.0, -7.0, 10.0, 49.0, 98.0)
_FLOATS += (
    0.99999994,
    1.0000001,
    2.9999998,
    -3.0000002,
    8388607.5,
    16777218.0,
    1.7e9,
    -2147483648.0,
)
_FLOATS += (1e-30, 60.000004)
_FLOAT_DIVISORS = (1.0, -1.0, 0.1, -0.1, 0.3, 2.0, 0.7, 3.0, -7.0, 49.0, 3600.0, 1e-3)


def _pairs(
    first: Iterable[float], second: Iterable[float], dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """All pairs, repeated to one length for all inputs."""
    columns = zip(*itertools.product(first, second), strict=True)
    return tuple(torch.from_numpy(np.resize(np.array(each), 312)).to(dtype) for each in columns)


_X = _pairs(_FLOATS, _FLOAT_DIVISORS, torch.float32)
FEED = (*_pairs(_DIVIDENDS, _DIVISORS, torch.int64), *_X)
WIDE_FEED = (*_pairs(_WIDE, _WIDE_DIVISORS, torch.int64), *_X)

EDGES = torch.tensor([-M - 1, -1, 0, 7, M, M + 1, 1700002799])
STEPS = torch.tensor([-1.0, 0.0, 0.1, 1.0, 3.0, 10.0, 16777216.0])

#: Expressions by dtype: ``a``, ``b`` int64; ``i``, ``j`` int32; ``u``, ``v`` uint8; ``s``, ``t``
#: int8; ``x``, ``y`` float32; ``h``, ``k`` float16; ``p``, ``q`` bfloat16.
EXPRESSIONS: dict[str, str] = {
    "int64": """
        a / b; a / 3600; (a / 3600).floor()
        torch.div(a, b, rounding_mode="floor"); torch.div(a, 3600, rounding_mode="floor")
        torch.div(a, b, rounding_mode="trunc"); torch.div(a, -7, rounding_mode="trunc")
        a // b; a // 1009; a // 1; 1700002799 // b
        a % b; a % 7; a % 1 + a; 1700002799 % b; torch.fmod(a, b); torch.fmod(a, -7)
        (a % 46341) ** 2; (a % 73) ** 5; a ** 0; (a % 11 - 5) ** (b % 9); 3 ** (b % 19)
        torch.square(a % 46341); a.abs(); a.sign(); 7 - a % 1000
        a == b; a < b; a >= M + 1; a.clamp(0, M + 1); a.clamp(min=0).clamp(max=M + 1)
        torch.clamp(a, min=b); torch.maximum(a, b)
        torch.bucketize(a, EDGES); torch.bucketize(a, EDGES, right=True)
        torch.searchsorted(EDGES, a)
        a.float(); (a % 2**30).float().long(); a.bool()
    """,
    "int32": """
        torch.div(i, j, rounding_mode="floor"); torch.div(i, 3600, rounding_mode="trunc")
        i // j; i % j; torch.fmod(i, j); (i % 1290) ** 3
    """,
    "int8, uint8, int16": """
        a.to(torch.uint8); a.to(torch.int8).long() * 2; a.to(torch.int16); u + v; (u - v).long() + 1
        s * t; -s; s // 7; u % 7; u / 255; a.to(torch.int16) * b.to(torch.int16)
    """,
    "float32": """
        x / y; x / 10; (x / 49).floor(); ((x.clamp(-1e4, 1e4) * 49) / 49).int(); (x / 49 + 0.5) >= 1
        torch.div(x, y, rounding_mode="floor"); torch.div(x, 0.1, rounding_mode="floor")
        torch.div(x, y, rounding_mode="trunc"); torch.div(x, 0.1, rounding_mode="trunc")
        x // y; x // 0.1; 1.0 // y; torch.div(y, x, rounding_mode="floor")
        x % y; x % 0.1; x % 1; x % -1; 1.0 % y; torch.remainder(y, x)
        torch.fmod(x, y); torch.fmod(x, 0.1); torch.fmod(y, x)
        x.floor(); x.ceil(); x.round(); x.trunc(); x.frac(); torch.round(x, decimals=1)
        (x % 2**30).long(); x.clamp(-1e6, 1e6).int().float(); x.bool()
        x.clamp(0, 255).to(torch.uint8)
        x ** 2; x ** 3; x ** -1; x.clamp(-8, 8) ** y.round().clamp(-3, 3)
        torch.sign(x); torch.copysign(y, x); torch.copysign(x, -0.0); torch.signbit(x)
        torch.reciprocal(x); torch.atan2(x, x.roll(12)); torch.atan2(x, -x.roll(12)); 1 - x
        x.clamp(0, 1).clamp(min=0.2); x.clamp(-1, 1).clamp(min=-0.3).clamp(max=0.5)
        x.clamp(0, 6); torch.clamp(x, min=y, max=y + 1)
        torch.nn.functional.hardtanh(x, -1, 1).clamp(min=0.1)
        x == y; x >= 0.1; torch.bucketize(x, STEPS); torch.bucketize(x, STEPS, right=True)
    """,
    "mixed": """
        1.0 - a; a * 0.5; a + x; a % 0.5; a % y; torch.fmod(a, 3600.0)
        torch.div(a, 3600.0, rounding_mode="floor"); a > 0.5; a == x; (1.0 - (x > 0).long()) * x
        (a % 100) ** 2.0; x.round().clamp(-8, 8) ** (b % 5); a.clamp(0.5, 7.5)
        torch.where(a > 0, a, x); torch.where(a > 0, a, 0.5)
        torch.cat([a, x]); torch.cat([a > 0, b]); torch.stack([a, x]); torch.stack([a, j])
        torch.cat([i, x, a > 0]); a * (b > 0); torch.bucketize(x, EDGES)
    """,
    "float16": "h.float(); (h * k).float(); (h / k + h).float(); h > k; (h / 3).floor().float()",
    "bfloat16": "p.float(); (p * q).float(); (p / q + p).float(); p > q; (p - 1.5).float()",
}


def expressions(dtype: str) -> list[str]:
    """The expressions of a dtype, as they stand in the table."""
    return [
        part.strip()
        for line in EXPRESSIONS[dtype].splitlines()
        for part in line.split(";")
        if part.strip()
    ]


class Arithmetic(nn.Module):
    """All expressions of some dtypes."""

    def __init__(self, dtypes: Iterable[str]) -> None:
        super().__init__()
        self.codes = [
            compile(each, each, "eval") for dtype in dtypes for each in expressions(dtype)
        ]

    def forward(self, a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        near = (x.clamp(-90, 90), y.clamp(-90, 90))
        given = {"a": a, "b": b, "x": x, "y": y, "torch": torch, "M": M}
        given |= {"EDGES": EDGES, "STEPS": STEPS}
        for names, dtype, pair in (
            ("ij", torch.int32, (a, b)),
            ("uv", torch.uint8, (a, b)),
            ("st", torch.int8, (a, b)),
            ("hk", torch.float16, near),
            ("pq", torch.bfloat16, near),
        ):
            given |= {n: value.to(dtype) for n, value in zip(names, pair, strict=True)}
        return tuple(eval(code, given) for code in self.codes)


def measure(format: str, dtypes: Iterable[str] = tuple(EXPRESSIONS)) -> dict[tuple[str, str], str]:
    """What a format makes of each expression, by dtype and expression."""
    rows = [(dtype, each) for dtype in dtypes for each in expressions(dtype)]
    module = Arithmetic(dtypes).eval()
    try:
        answers = _answers(format, module)
    except EdgeError as error:
        return dict.fromkeys(rows, f"refused {error.code}")
    return {
        row: _status([(wanted[i], got[i]) for wanted, got in answers]) for i, row in enumerate(rows)
    }


def _answers(format: str, module: nn.Module) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """For each feed PyTorch's outputs and the artifact's; ONNX has integers of 64 bits."""
    with tempfile.TemporaryDirectory(prefix="arithmetic-") as folder:
        root = Path(folder)
        exported = _export(module, root)
        artifact = backends.get(format).export(exported, root, root / format)
        with backends.get(format).load(artifact, root / format, threads=1) as session:
            adapter = Adapter(session, exported.signature)
            made = []
            for feed in (FEED, WIDE_FEED)[: 2 if format == "onnx" else 1]:
                found = adapter.run({n: t.numpy() for n, t in zip("abxy", feed, strict=True)})
                wanted = [each.numpy() for each in module(*feed)]
                made.append((wanted, [found[spec.name] for spec in exported.signature.outputs]))
    return made


def _export(module: nn.Module, root: Path) -> Exported:
    options = ExportOptions(input_names=tuple("abxy"))
    program = export_module(module, FEED, options, root)
    entry, examples = write_program(program, root)
    return Exported(
        source=Source(kind="factory", location="dev:arithmetic", folder=str(root)),
        program=entry,
        examples=examples,
        signature=program.signature,
        notes=program.notes,
        weights=weights_of(program.program),
        graph_sha256=graph_sha256(program.program),
    )


def _status(pairs: list[tuple[np.ndarray, np.ndarray]]) -> str:
    """The worst of some pairs of right and found values."""
    if all(np.array_equal(w, g, equal_nan=w.dtype.kind == "f") for w, g in pairs):
        return "exact"
    close = all(
        w.dtype.kind == "f" and np.allclose(w, g, rtol=_LAST_BIT, atol=0, equal_nan=True)
        for w, g in pairs
    )
    return "last bit" if close else "WRONG"


_HEAD = """\
# Arithmetic

What each format computes of PyTorch's arithmetic, at the values where rounding decides: 0,
neighbours of integers, multiples of divisors, negative divisors, integers beyond 2^24. `exact`:
equal to eager PyTorch. `last bit`: a quotient, a power or an angle differs in its last bits. Where
a rounding, a comparison or a cast to an integer reads a quotient, the quotient is exact as well.

ONNX holds integers of 64 bits. LiteRT and Core ML hold 32 bits: their integers are exact from
-2^31 to 2^31 - 1. Core ML runs on edgeserve's
[interpreter](../explanation/interpreter.md); on a device the golden cases prove the artifact.
`+0` and `-0` count as equal, unless the sign is the result (`signbit`, `copysign`, `reciprocal`,
`atan2`).

`a`, `b` are int64; `i`, `j` int32; `u`, `v` uint8; `s`, `t` int8; `x`, `y` float32; `h`, `k`
float16; `p`, `q` bfloat16. `M` is 2^24; `EDGES` are integers, `STEPS` are floats, in order.

`python -m dev.arithmetic --write docs/reference/arithmetic.md` writes this page, and
`tests/backends/test_arithmetic.py` compares it with new measurements.

| dtype | expression | ONNX | LiteRT | Core ML |
|---|---|---|---|---|
"""


def page(cells: dict[str, dict[tuple[str, str], str]]) -> str:
    """The reference page, from the statuses by format."""
    rows = [
        [dtype, f"`{code}`", *(cells[each][dtype, code] for each in FORMATS)]
        for dtype in EXPRESSIONS
        for code in expressions(dtype)
    ]
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    made = page({format: measure(format) for format in FORMATS})
    if "--write" in sys.argv:
        Path(sys.argv[sys.argv.index("--write") + 1]).write_text(made)
    else:
        print(made)
