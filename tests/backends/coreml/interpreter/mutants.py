"""Feeds damaged packages to the interpreter: each must give an answer or a coded error.

Run as a program, with little memory to spare, so that a crash or a flood of memory is seen from
outside:  python -P mutants.py PACKAGE... --count 600 --seed 1

It prints one line of JSON: how many mutants were answered, refused (by code), or broke the rule.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from coremltools.proto.Model_pb2 import Model

from edgeserve.backends.coreml.interpreter import Interpreter
from edgeserve.errors import EdgeError

#: Bytes of address space above what the imports took.
SPARE = 1500 << 20
#: Seconds for one mutant.
PATIENCE = 30

Bytes = dict[str, bytes]
Random = np.random.Generator

MODEL = "Data/com.apple.CoreML/model.mlmodel"
HUGE = (10**9, 2**31, 2**62, 2**64 - 1)


def one(rng: Random, choices: Sequence[Any]) -> Any:
    """One of some things, as it is: numpy's own choice would turn them into its types."""
    return choices[int(rng.integers(len(choices)))]


def flipped(data: bytes, rng: Random) -> bytes:
    """A few bits turned over."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        found[int(rng.integers(len(found)))] ^= 1 << int(rng.integers(8))
    return bytes(found)


def cut(data: bytes, rng: Random) -> bytes:
    """An end, a start or a middle lost."""
    a, b = sorted(int(each) for each in rng.integers(0, len(data) + 1, 2))
    return bytes(one(rng, (data[:a], data[b:], data[:a] + data[b:])))


def overwritten(data: bytes, rng: Random) -> bytes:
    """A stretch replaced by zeros, ones, noise or another stretch."""
    at, size = int(rng.integers(len(data))), int(rng.integers(1, 33))
    other = int(rng.integers(len(data)))
    fillings = (bytes(size), b"\xff" * size, rng.bytes(size), data[other : other + size])
    return data[:at] + bytes(one(rng, fillings)) + data[at + size :]


def damaged(files: Bytes, rng: Random) -> Bytes:
    """One file damaged, or lost."""
    name = one(rng, sorted(files))
    change = one(rng, (flipped, flipped, cut, overwritten))
    if rng.random() < 0.05:
        return {other: data for other, data in files.items() if other != name}
    return files | {name: change(files[name], rng) if files[name] else b"x"}


def lying(files: Bytes, rng: Random) -> Bytes:
    """The model's message is sound, and one thing in it is not true."""
    model = Model()
    model.ParseFromString(files[MODEL])
    function = one(rng, list(model.mlProgram.functions.values()))
    operations = list(next(iter(function.block_specializations.values())).operations)
    for inner in [block for op in operations for block in op.blocks]:
        operations += inner.operations
    one(rng, LIES)(operations, function, rng)
    return files | {MODEL: model.SerializeToString()}


def _types(operations: Any, function: Any) -> list[Any]:
    values = [v for op in operations for v in op.attributes.values()]
    outputs = [o.type for op in operations for o in op.outputs]
    kinds = [*(v.type for v in values), *outputs, *(i.type for i in function.inputs)]
    return [kind.tensorType for kind in kinds if kind.WhichOneof("type") == "tensorType"]


def _size(operations: Any, function: Any, rng: Random) -> None:
    kinds = [kind for kind in _types(operations, function) if kind.dimensions]
    dimension = one(rng, one(rng, kinds).dimensions)
    dimension.constant.size = one(rng, [0, 1, 7, *HUGE])


def _rank(operations: Any, function: Any, rng: Random) -> None:
    kind = one(rng, _types(operations, function))
    kind.rank = one(rng, [-1, 0, 1, 6, 1000, 2**40])
    if rng.random() < 0.5:
        for _ in range(min(max(kind.rank, 0), 20)):
            kind.dimensions.add().constant.size = 2


def _dtype(operations: Any, function: Any, rng: Random) -> None:
    kind = one(rng, _types(operations, function))
    kind.dataType = one(rng, [0, 1, 2, 10, 11, 12, 13, 21, 23, 24, 25, 31, 33, 35, 36, 37, 40])


def _values(operations: Any, rng: Random) -> Any:
    values = [v for op in operations for v in op.attributes.values()]
    return one(rng, [v for v in values if v.type.WhichOneof("type") == "tensorType"])


def _constant(operations: Any, function: Any, rng: Random) -> None:
    tensor = _values(operations, rng).immediateValue.tensor
    if tensor.WhichOneof("value") == "ints" and tensor.ints.values:
        at = int(rng.integers(len(tensor.ints.values)))
        tensor.ints.values[at] = one(rng, [-(2**31), -7, -1, 0, 3, 10**9, 2**31 - 1])
    elif tensor.WhichOneof("value") == "strings" and tensor.strings.values:
        tensor.strings.values[0] = one(rng, ["", "fp16", "same", "x" * 1000, "int32"])
    elif tensor.WhichOneof("value") == "bools" and tensor.bools.values:
        tensor.bools.values[0] = not tensor.bools.values[0]


def _blob(operations: Any, function: Any, rng: Random) -> None:
    values = [v for op in operations for v in op.attributes.values()]
    stored = [v for v in values if v.WhichOneof("value") == "blobFileValue"]
    if stored:
        blob = one(rng, stored).blobFileValue
        if rng.random() < 0.7:
            blob.offset = one(rng, [0, 1, 63, 128, 1 << 20, *HUGE])
        else:
            names = ["/etc/passwd", "@model_path/weights/../model.mlmodel", "", "weight.bin"]
            blob.fileName = one(rng, names)


def _name(operations: Any, function: Any, rng: Random) -> None:
    op = one(rng, operations)
    names = [o.name for each in operations for o in each.outputs]
    if op.inputs and rng.random() < 0.6:
        argument = op.inputs[one(rng, sorted(op.inputs))]
        if argument.arguments:
            argument.arguments[0].name = one(rng, [*names, "nobody"])
    elif op.outputs:
        op.outputs[0].name = one(rng, [*names, ""])


def _kind(operations: Any, function: Any, rng: Random) -> None:
    words = [each.type for each in operations]
    op = one(rng, operations)
    op.type = one(rng, [*words, "tile", "fill", "custom_layer", "nothing", "write_state"])


def _parameter(operations: Any, function: Any, rng: Random) -> None:
    op = one(rng, [each for each in operations if each.inputs])
    key = one(rng, sorted(op.inputs))
    if rng.random() < 0.5:
        op.inputs[f"{key}x"].CopyFrom(op.inputs[key])
    del op.inputs[key]


def _nested(operations: Any, function: Any, rng: Random) -> None:
    op = one(rng, operations)
    for _ in range(int(rng.integers(1, 30))):
        op = op.blocks.add().operations.add()
    op.type = "const"


LIES: tuple[Callable[[Any, Any, Random], None], ...] = (
    _size,
    _size,
    _size,
    _rank,
    _dtype,
    _constant,
    _constant,
    _blob,
    _blob,
    _name,
    _kind,
    _parameter,
    _nested,
)


def judged(path: Path) -> str:
    """What became of a package: "answer", the code of the refusal, or how it broke the rule."""
    signal.alarm(PATIENCE)
    try:
        interpreter = Interpreter(path)
        feed = {}
        for spec in interpreter.inputs:
            sizes = [size if isinstance(size, int) else 3 for size in spec.shape]
            if np.prod(sizes, dtype=np.float64) > 1 << 20:
                return "answer"  # loaded; nobody would feed it
            feed[spec.name] = np.ones(sizes, np.dtype(spec.dtype))
        interpreter.run(feed)
    except EdgeError as error:
        return error.code
    except BaseException:
        return f"BROKE {traceback.format_exc()[-700:]}"
    finally:
        signal.alarm(0)
    return "answer"


def sweep(packages: list[Path], count: int, seed: int) -> Counter[str]:
    """Judge ``count`` mutants, from all packages in turn."""
    found: Counter[str] = Counter()
    stored = [
        {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}
        for path in packages
    ]
    for i in range(count):
        rng = np.random.default_rng((seed, i))
        files = (damaged, lying)[i % 2](stored[i // 2 % len(stored)], rng)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mutant.mlpackage"
            for name, data in files.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(data)
            verdict = judged(path)
            shutil.rmtree(path)
        found[f"{verdict} (mutant {i})" if verdict.startswith("BROKE") else verdict] += 1
    return found


def _late(*_: object) -> None:
    raise TimeoutError(f"a mutant took more than {PATIENCE} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + SPARE, taken + SPARE))
    signal.signal(signal.SIGALRM, _late)
    print(json.dumps(sweep(options.packages, options.count, options.seed)))


if __name__ == "__main__":
    main()
