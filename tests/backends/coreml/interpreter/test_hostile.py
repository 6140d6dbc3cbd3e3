"""Packages made to harm: what they declare is never believed, and nothing but a code comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coremltools as ct
import numpy as np
import pytest
from coremltools.converters.mil.mil import Builder as mb  # noqa: N813 - its users' name for it
from coremltools.optimize.coreml import OpPalettizerConfig, OptimizationConfig, palettize_weights
from coremltools.proto.Model_pb2 import Model

from edgeserve.backends.coreml.interpreter import Interpreter
from edgeserve.errors import MilError

MODEL = Path("Data/com.apple.CoreML/model.mlmodel")
WEIGHTS = Path("Data/com.apple.CoreML/weights/weight.bin")
#: How many mutants; a night's sweep sets more.
COUNT = int(os.environ.get("EDGESERVE_MUTANTS", "300"))


@pytest.fixture(scope="module")
def targets(placed: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Small packages that hold most of what a package can: weights, tables, a loop, a branch."""

    @mb.program(input_specs=[mb.TensorSpec((1, 3, 8, 8))], opset_version=ct.target.iOS17)
    def net(x: Any) -> Any:
        rng = np.random.default_rng(0)
        weight = rng.normal(size=(16, 3, 3, 3)).astype(np.float32)
        y = mb.relu(x=mb.conv(x=x, weight=weight, pad_type="same", strides=[2, 2]))
        y = mb.reduce_mean(x=y, axes=[2, 3])
        y = mb.linear(x=y, weight=rng.normal(size=(40, 16)).astype(np.float32))
        y = mb.reshape(x=mb.softmax(x=y, axis=-1), shape=[4, 10])
        return mb.concat(
            values=[mb.topk(x=y, k=3)[0], mb.slice_by_size(x=y, begin=[0, 1], size=[4, 2])], axis=1
        )

    @mb.program(input_specs=[mb.TensorSpec((4,))], opset_version=ct.target.iOS16)
    def loop(x: Any) -> Any:
        table = np.arange(64, dtype=np.float32).reshape(8, 8)

        def body(value: Any, turn: Any) -> Any:
            grown = mb.cond(
                pred=mb.equal(x=mb.mod(x=turn, y=np.int32(2)), y=np.int32(0)),
                _true_fn=lambda: mb.mul(x=value, y=np.float32(2)),
                _false_fn=lambda: mb.add(x=value, y=np.float32(1)),
            )
            return grown, mb.add(x=turn, y=np.int32(1))

        value, turn = mb.while_loop(
            _cond=lambda value, turn: mb.less(x=turn, y=np.int32(5)),
            _body=body,
            loop_vars=(x, np.int32(0)),
        )
        tiled = mb.tile(x=table, reps=mb.concat(values=[turn, turn], axis=0))
        return mb.matmul(
            x=mb.fill(shape=[4, 1], value=np.float32(2)), y=mb.expand_dims(x=value, axes=[0])
        ), mb.reduce_sum(x=tiled)

    def palettized(model: Any) -> Any:
        op = OpPalettizerConfig(mode="uniform", nbits=4, weight_threshold=64)
        return palettize_weights(model, OptimizationConfig(op))

    folder = tmp_path_factory.mktemp("targets")
    paths = []
    for name, program, opset, edit in (
        ("half", net, ct.target.iOS17, None),
        ("table", net, ct.target.iOS18, palettized),
        ("loop", loop, ct.target.iOS16, None),
    ):
        (folder / name).mkdir()
        half = name == "half"
        paths.append(placed(program, folder / name, opset=opset, fp16=half, edit=edit))
    return paths


@pytest.mark.timeout(max(600, COUNT))
def test_mutants_are_refused_or_answered(targets: list[Path]) -> None:
    """Flipped bits, lost pieces and lies, judged in a process that has little memory to spare."""
    script = Path(__file__).with_name("mutants.py")
    command = [sys.executable, "-P", str(script), *map(str, targets), "--count", str(COUNT)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=max(550, COUNT)
    )
    assert done.returncode == 0, done.stderr[-2000:]
    verdicts: dict[str, int] = json.loads(done.stdout)
    assert sum(verdicts.values()) == COUNT
    broken = [verdict for verdict in verdicts if not verdict.startswith(("answer", "EDGE-MIL-"))]
    assert not broken, broken[0]
    seen = {"answer", *(f"EDGE-MIL-00{i}" for i in (2, 3, 4, 5))}
    assert seen <= set(verdicts), "the mutants do not reach all checks"


Edit = Callable[[Any], None]


def changed(source: Path, folder: Path, edit: Edit) -> Path:
    """A copy of a package whose model message was edited."""
    path = folder / "changed.mlpackage"
    for file in source.rglob("*"):
        if file.is_file():
            copy = path / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    model = Model()
    model.ParseFromString((path / MODEL).read_bytes())
    edit(model)
    (path / MODEL).write_bytes(model.SerializeToString())
    return path


def block_of(model: Any) -> Any:
    (function,) = model.mlProgram.functions.values()
    (block,) = function.block_specializations.values()
    return block


def stored(model: Any) -> list[Any]:
    """The constants that lie in the weight file."""
    values = [v for op in block_of(model).operations for v in op.attributes.values()]
    return [value for value in values if value.WhichOneof("value") == "blobFileValue"]


def resized(value: Any, size: int) -> None:
    value.type.tensorType.dimensions[0].constant.size = size


def test_a_constant_of_a_billion_elements(targets: list[Path], tmp_path: Path) -> None:
    for size, code in ((10**9, "004"), (1 << 20, "003"), (2**63, "004")):
        path = changed(targets[0], tmp_path, lambda m, n=size: resized(stored(m)[0], n))  # type: ignore[misc]
        with pytest.raises(MilError, match=f"EDGE-MIL-{code}"):
            Interpreter(path)


def test_one_weight_read_a_thousand_times(targets: list[Path], tmp_path: Path) -> None:
    """Each reference would be a copy: a small file would become a large program."""

    def edit(model: Any) -> None:
        operations = block_of(model).operations
        op = next(
            o for o in operations if o.attributes["val"].WhichOneof("value") == "blobFileValue"
        )
        for i in range(3000):
            copy = operations.add()
            copy.CopyFrom(op)
            copy.outputs[0].name = f"copy_{i}"

    with pytest.raises(MilError, match="EDGE-MIL-004"):
        Interpreter(changed(targets[0], tmp_path, edit))


@pytest.mark.parametrize("op", ["fill", "tile", "range_1d"])
def test_large_values_from_small_constants(placed: Any, tmp_path: Path, op: str) -> None:
    """What the reader would compute with numpy while it loads: 4 GB here, from a few bytes."""

    @mb.program(input_specs=[mb.TensorSpec((1,))], opset_version=ct.target.iOS16)
    def program(x: Any) -> Any:
        made = {
            "fill": lambda: mb.fill(shape=[4, 8], value=np.float32(1)),
            "tile": lambda: mb.tile(x=np.ones((1, 2), np.float32), reps=[4, 4]),
            "range_1d": lambda: mb.range_1d(
                start=np.float32(0), end=np.float32(32), step=np.float32(1)
            ),
        }[op]()
        flat = mb.reshape(x=mb.reduce_sum(x=made), shape=[1])
        return mb.add(x=x, y=flat)

    def edit(model: Any) -> None:
        for each in block_of(model).operations:
            if each.type == "const":
                tensor = each.attributes["val"].immediateValue.tensor
                for i, number in enumerate(tensor.ints.values):
                    if number in (4, 8):
                        tensor.ints.values[i] = 32768
                for i, real in enumerate(tensor.floats.values):
                    if real == 32:
                        tensor.floats.values[i] = 1 << 30
            for output in each.outputs:
                for dimension in output.type.tensorType.dimensions:
                    size = dimension.constant.size
                    dimension.constant.size = 32768 if size in (4, 8) else size
                    dimension.constant.size = 1 << 30 if size == 32 else dimension.constant.size

    folder = placed(program, tmp_path, opset=ct.target.iOS16, pass_pipeline=ct.PassPipeline.EMPTY)
    assert Interpreter(folder).run({"x": np.zeros(1, np.float32)})
    with pytest.raises(MilError, match="EDGE-MIL-004"):
        Interpreter(changed(folder, tmp_path, edit))


def test_blocks_without_end(targets: list[Path], tmp_path: Path) -> None:
    def edit(model: Any) -> None:
        op = block_of(model).operations[0]
        for _ in range(24):
            op = op.blocks.add().operations.add()

    with pytest.raises(MilError, match="EDGE-MIL-005"):
        Interpreter(changed(targets[0], tmp_path, edit))


def test_a_value_that_is_read_before_it_is_made(targets: list[Path], tmp_path: Path) -> None:
    """A ring of two ops, as it would be without an order."""

    def edit(model: Any) -> None:
        ops = [op for op in block_of(model).operations if op.type in ("conv", "relu")]
        ops[0].inputs["x"].arguments[0].name = ops[1].outputs[0].name

    with pytest.raises(MilError, match="EDGE-MIL-005"):
        Interpreter(changed(targets[0], tmp_path, edit))


def test_an_unknown_op_is_named(targets: list[Path], tmp_path: Path) -> None:
    from edgeserve.backends.coreml.interpreter.registry import find

    with pytest.raises(MilError, match=r"EDGE-MIL-001.*'nothing' in package 'p'"):
        find("nothing", 8, "p")

    def edit(model: Any) -> None:
        next(op for op in block_of(model).operations if op.type == "relu").type = "nothing"

    with pytest.raises(MilError, match="nothing"):
        Interpreter(changed(targets[0], tmp_path, edit))


def test_weights_are_missing_or_a_link(targets: list[Path], tmp_path: Path) -> None:
    path = changed(targets[0], tmp_path, lambda model: None)
    data = (path / WEIGHTS).read_bytes()
    (path / WEIGHTS).unlink()
    with pytest.raises(MilError, match="EDGE-MIL-003"):
        Interpreter(path)
    (tmp_path / "elsewhere.bin").write_bytes(data)
    (path / WEIGHTS).symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(MilError, match="EDGE-MIL-003"):
        Interpreter(path)


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[]",
        b"{}",
        b'{"rootModelIdentifier": 1, "itemInfoEntries": {}}',
        b"[" * 100_000,
        b'{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "../../../etc/passwd"}}}',
        b'{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "/etc/passwd"}}}',
        b'{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": 7}}}',
        b'{"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "\\u0000"}}}',
    ],
)
def test_a_manifest_that_leads_nowhere(
    targets: list[Path], tmp_path: Path, manifest: bytes
) -> None:
    path = changed(targets[0], tmp_path, lambda model: None)
    (path / "Manifest.json").write_bytes(manifest)
    with pytest.raises(MilError, match="EDGE-MIL-002"):
        Interpreter(path)


def test_what_is_no_package(targets: list[Path], tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", targets[0] / "Manifest.json"):
        with pytest.raises(MilError, match="EDGE-MIL-002"):
            Interpreter(path)

    def edit(model: Any) -> None:
        model.neuralNetwork.layers.add()

    with pytest.raises(MilError, match="neuralNetwork in place of an ML program"):
        Interpreter(changed(targets[0], tmp_path, edit))


def test_sizes_that_a_program_computes_are_bounded(run_mil: Any) -> None:
    """The program's types fix nothing here: the size comes from the input."""

    @mb.program(input_specs=[mb.TensorSpec((1,))], opset_version=ct.target.iOS17)
    def program(x: Any) -> Any:
        count = mb.cast(x=x, dtype="int32")
        return mb.reduce_sum(x=mb.tile(x=mb.fill(shape=count, value=np.float32(1)), reps=count))

    assert run_mil(program, {"x": np.array([9], np.float32)}).popitem()[1] == 81
    for size in (1e5, 1e9, -1):
        with pytest.raises(MilError, match=r"EDGE-MIL-00[46]"):
            run_mil(program, {"x": np.array([size], np.float32)})
