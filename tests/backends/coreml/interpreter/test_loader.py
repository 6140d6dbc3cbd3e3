"""Packages as they come: images, flexible shapes, functions, classifiers, precisions, versions."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder as mb  # noqa: N813 - its users' name for it

from edgeserve.backends.coreml.coremltools_import import remove_weight_folders
from edgeserve.backends.coreml.interpreter import Interpreter
from edgeserve.backends.torch.program.io import log_warnings
from edgeserve.errors import MilError

RNG = np.random.default_rng(9)
LABELS = ["ant", "bee", "cat"]


class _Tagger(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(10)
        self.conv = torch.nn.Conv2d(3, 32, 3)
        self.linear = torch.nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.conv(x).relu().mean((2, 3))).softmax(-1)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def tagger() -> Any:
    with log_warnings():
        return torch.export.export(
            _Tagger().eval(), (torch.zeros(1, 3, 8, 6),)
        ).run_decompositions()


@pytest.fixture(scope="module")
def half(tagger: Any, placed: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tagger in float16, its input float32."""
    tensor = ct.TensorType(name="x", shape=(1, 3, 8, 6), dtype=np.float32)
    found: Path = placed(tagger, tmp_path_factory.mktemp("half"), fp16=True, inputs=[tensor])
    return found


def right(x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(_Tagger().eval()(torch.from_numpy(x)))


def test_float16_is_rounded_or_not_as_asked(half: Path) -> None:
    x = RNG.normal(size=(1, 3, 8, 6)).astype(np.float32)
    exact, rounded = Interpreter(half, precision="fp32"), Interpreter(half)
    assert (exact.precision, rounded.precision) == ("fp32", "fp16")
    close, rough = (next(iter(each.run({"x": x}).values())) for each in (exact, rounded))
    wanted = right(x)
    assert np.abs(rough - wanted).max() < 4e-3
    assert np.abs(close - wanted).max() < np.abs(rough - wanted).max() + 1e-3
    taps = [op.outputs[0] for op in rounded.ops if op.type == "relu"]
    inner = Interpreter(half, taps=taps).run({"x": x})[taps[0]]
    assert inner.dtype == np.float32
    np.testing.assert_array_equal(inner, inner.astype(np.float16).astype(np.float32))
    unrounded = Interpreter(half, taps=taps, precision="fp32").run({"x": x})[taps[0]]
    assert (unrounded != inner).any()
    np.testing.assert_array_equal(unrounded.astype(np.float16)[inner == 0], 0)


def test_each_op_is_rounded_as_pytorch_rounds(half: Path) -> None:
    """The first op alone: a convolution in float32 of float16 values, then one rounding."""
    (name,) = [op.outputs[0] for op in Interpreter(half).ops if op.type == "conv"]
    x = RNG.normal(size=(1, 3, 8, 6)).astype(np.float32)
    found = Interpreter(half, taps=[name]).run({"x": x})[name]
    net = _Tagger().half().float()
    with torch.no_grad():
        wanted = net.conv(torch.from_numpy(x).half().float()).half().float().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)  # sums in another order
    assert (found == wanted).mean() > 0.98


def test_an_image_input(tagger: Any, placed: Any, tmp_path: Path) -> None:
    """Scale and bias are the program's; the tensor is 0..255 in the declared colour order."""
    image = ct.ImageType(
        name="x",
        shape=(1, 3, 8, 6),
        scale=1 / 64,
        bias=[-1.0, -2.0, -0.5],
        color_layout=ct.colorlayout.BGR,
    )
    path = placed(tagger, tmp_path, inputs=[image], classifier_config=ct.ClassifierConfig(LABELS))
    interpreter = Interpreter(path)
    assert interpreter.images == {"x": "BGR"}
    assert interpreter.inputs[0].shape == (1, 3, 8, 6)
    pixels = RNG.integers(0, 256, (8, 6, 3)).astype(np.uint8)
    planes = pixels[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32)
    wanted = right(planes / 64 + np.array([-1, -2, -0.5], np.float32).reshape(3, 1, 1))
    for feed in (pixels, planes):
        found = interpreter.run({"x": feed})
        np.testing.assert_allclose(found["classLabel_probs"], wanted[0], atol=1e-5)
        assert str(found["classLabel"]) == LABELS[int(wanted.argmax())]
    with pytest.raises(MilError, match="EDGE-MIL-007"):
        interpreter.run({"x": pixels[..., 0]})


def test_flexible_shapes_have_their_limits(placed: Any, tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.cumsum(1) * x.shape[1] + y.sum()

    length = torch.export.Dim("length", min=2, max=9)
    with log_warnings():
        program = torch.export.export(
            Net(), (torch.zeros(1, 4), torch.zeros(3)), dynamic_shapes=({1: length}, None)
        ).run_decompositions()
    interpreter = Interpreter(
        placed(
            program,
            tmp_path,
            inputs=[
                ct.TensorType(name="x", shape=(1, ct.RangeDim(2, 9)), dtype=np.float32),
                ct.TensorType(name="y", shape=(3,), dtype=np.float32),
            ],
        )
    )
    assert [spec.shape for spec in interpreter.inputs] == [(1, "x_1"), (3,)]
    for size in (2, 5, 9):
        x, y = RNG.normal(size=(1, size)).astype(np.float32), np.ones(3, np.float32)
        (found,) = interpreter.run({"x": x, "y": y}).values()
        np.testing.assert_allclose(found, x.cumsum(1) * size + 3, rtol=1e-5, atol=1e-5)
    for size in (1, 10):
        with pytest.raises(MilError, match="EDGE-MIL-007"):
            interpreter.run({"x": np.zeros((1, size), np.float32), "y": np.ones(3, np.float32)})


def test_enumerated_shapes(placed: Any, tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    length = torch.export.Dim("length", min=2, max=64)
    with log_warnings():
        exported = torch.export.export(
            Net(), (torch.zeros(1, 4),), dynamic_shapes=({1: length},)
        ).run_decompositions()
    shapes = ct.EnumeratedShapes([(1, 4), (1, 8), (1, 16)])
    tensor = ct.TensorType(name="x", shape=shapes, dtype=np.float32)
    interpreter = Interpreter(placed(exported, tmp_path, inputs=[tensor]))
    assert interpreter.run({"x": np.zeros((1, 8), np.float32)})
    with pytest.raises(MilError, match="EDGE-MIL-007"):
        interpreter.run({"x": np.zeros((1, 9), np.float32)})


def _times(factor: int) -> Any:
    @mb.program(input_specs=[mb.TensorSpec((40,))], opset_version=ct.target.iOS18)
    def program(x: Any) -> Any:
        return mb.mul(x=x, y=np.full(40, factor, np.float32), name="y")

    return program


def test_one_of_several_functions(placed: Any, tmp_path: Path) -> None:
    for name, factor in (("double", 2), ("triple", 3)):
        (tmp_path / name).mkdir()
        placed(_times(factor), tmp_path / name, opset=ct.target.iOS18)
    both = ct.utils.MultiFunctionDescriptor()
    for name in ("double", "triple"):
        both.add_function(str(tmp_path / name / "model.mlpackage"), "main", name)
    both.default_function_name = "triple"
    path = tmp_path / "both.mlpackage"
    with log_warnings(), remove_weight_folders():
        ct.utils.save_multifunction(both, str(path))
    feed = {"x": np.ones(40, np.float32)}
    for function, factor in (("double", 2), ("triple", 3), (None, 3)):
        interpreter = Interpreter(path, function=function)
        assert interpreter.function == (function or "triple")
        assert set(interpreter.run(feed)["y"].tolist()) == {factor}
    with pytest.raises(MilError, match="EDGE-MIL-009"):
        Interpreter(path, function="main")


@pytest.mark.parametrize("opset", [ct.target.iOS15, ct.target.iOS16, ct.target.iOS18])
def test_every_version_of_the_format(tagger: Any, placed: Any, tmp_path: Path, opset: Any) -> None:
    path = placed(tagger, tmp_path, opset=opset)
    interpreter = Interpreter(path)
    assert interpreter.opset == opset
    (spec,) = interpreter.inputs
    x = RNG.normal(size=(1, 3, 8, 6)).astype(spec.dtype)
    (found,) = interpreter.run({spec.name: x}).values()
    np.testing.assert_allclose(found, right(x.astype(np.float32)), atol=1e-5)


def test_provenance_is_kept(half: Path, tmp_path: Path) -> None:
    """The debug handles that the exporter wrote beside the package."""
    name = next(op.outputs[0] for op in Interpreter(half).ops if op.type == "relu")
    mapping = {
        "version": "9.0",
        "mapping": {
            "7": [[{"Type": "Program"}, {"Type": "Operation", "Operator": "relu", "Output": name}]],
            "null": [[{"Type": "Operation", "Operator": "const", "Output": "c"}]],
        },
    }
    (half / "executorch_debug_handle_mapping.json").write_text(json.dumps(mapping))
    assert {op.outputs[0]: op.handles for op in Interpreter(half).ops if op.handles} == {name: (7,)}
    (half / "executorch_debug_handle_mapping.json").write_text('{"mapping": [3]}')
    assert not any(op.handles for op in Interpreter(half).ops)


@pytest.mark.parametrize(
    "feed",
    [
        {},
        {"y": np.zeros((1, 3, 8, 6), np.float32)},
        {"x": np.zeros((1, 3, 8, 6), np.float64)},
        {"x": np.zeros((1, 3, 8), np.float32)},
        {"x": [[1.0]]},
    ],
)
def test_a_wrong_feed_is_refused(half: Path, feed: Any) -> None:
    with pytest.raises(MilError, match="EDGE-MIL-007"):
        Interpreter(half).run(feed)


def test_an_unknown_tap_is_refused(half: Path) -> None:
    with pytest.raises(MilError, match="EDGE-MIL-008"):
        Interpreter(half, taps=["nothing"])


def test_threads_do_not_meet(half: Path) -> None:
    interpreter = Interpreter(half)
    feeds = [{"x": RNG.normal(size=(1, 3, 8, 6)).astype(np.float32)} for _ in range(4)]
    wanted = [next(iter(interpreter.run(feed).values())) for feed in feeds]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(20):
            (found,) = interpreter.run(feeds[i]).values()
            if (found != wanted[i]).any():
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_caller_may_change_what_it_gave_and_got(half: Path) -> None:
    interpreter = Interpreter(half)
    x = RNG.normal(size=(1, 3, 8, 6)).astype(np.float32)
    (first,) = interpreter.run({"x": x}).values()
    kept = first.copy()
    first[:] = 0
    (second,) = interpreter.run({"x": x}).values()
    np.testing.assert_array_equal(second, kept)
