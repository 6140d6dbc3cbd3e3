"""Branches, loops, lists and state: through the package's file, as a device gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import coremltools as ct
import numpy as np
import pytest
from coremltools.converters.mil.mil import Builder as mb  # noqa: N813 - its users' name for it
from coremltools.converters.mil.mil import types

from edgeserve.backends.coreml.interpreter import Interpreter, control_flow
from edgeserve.errors import MilError


@pytest.fixture(scope="module")
def counting(placed: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loop that doubles x until its sum passes a limit, inside it a branch; gives turns too."""

    @mb.program(
        input_specs=[mb.TensorSpec((2,)), mb.TensorSpec((1,))], opset_version=ct.target.iOS16
    )
    def program(x: Any, limit: Any) -> Any:
        stop = mb.squeeze(x=limit)

        def going(value: Any, turns: Any) -> Any:
            return mb.less(x=mb.reduce_sum(x=value, keep_dims=False), y=stop)

        def body(value: Any, turns: Any) -> Any:
            even = mb.equal(x=mb.mod(x=turns, y=np.int32(2)), y=np.int32(0))
            grown = mb.cond(
                pred=even,
                _true_fn=lambda: mb.mul(x=value, y=np.float32(2)),
                _false_fn=lambda: mb.add(x=value, y=np.float32(1)),
            )
            return grown, mb.add(x=turns, y=np.int32(1))

        value, turns = mb.while_loop(_cond=going, _body=body, loop_vars=(x, np.int32(0)))
        return mb.identity(x=value, name="value"), mb.cast(x=turns, dtype="fp32", name="turns")

    found: Path = placed(program, tmp_path_factory.mktemp("loop"), opset=ct.target.iOS16)
    return found


@pytest.mark.parametrize(("start", "limit"), [([1, 2], 50), ([40, 20], 50), ([0.5, 0], 1000)])
def test_a_loop_with_a_branch(counting: Path, start: list[float], limit: float) -> None:
    value, turns = np.array(start, np.float32), 0
    while value.sum() < limit:
        value, turns = value * 2 if turns % 2 == 0 else value + 1, turns + 1
    feed = {"x": np.array(start, np.float32), "limit": np.array([limit], np.float32)}
    found = Interpreter(counting).run(feed)
    np.testing.assert_array_equal(found["value"], value)
    assert found["turns"].tolist() in (turns, [turns])


def test_a_loop_without_end_is_stopped(counting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flow, "MAX_TURNS", 100)
    feed = {"x": np.array([-1, -2], np.float32), "limit": np.array([9], np.float32)}
    with pytest.raises(MilError, match="EDGE-MIL-011"):
        Interpreter(counting).run(feed)


def test_the_listing_shows_nested_blocks(counting: Path) -> None:
    ops = Interpreter(counting).ops
    depth = {op.type: op.depth for op in ops}
    assert depth["while_loop"] == 0
    assert depth["cond"] == 1
    assert depth["mul"] == 2


def test_lists(run_mil: Any) -> None:
    """Writing behind the end makes a list longer; an older list stays as it was."""

    @mb.program(input_specs=[mb.TensorSpec((3, 2))], opset_version=ct.target.iOS17)
    def program(x: Any) -> Any:
        empty = mb.make_list(init_length=2, dynamic_length=True, elem_shape=(2,), dtype="fp32")
        first = mb.slice_by_index(x=x, begin=[0, 0], end=[1, 2], squeeze_mask=[True, False])
        one = mb.list_write(ls=empty, index=1, value=first)
        rows = mb.list_scatter(ls=one, indices=[0, 3, 4], value=x)
        return (
            mb.list_gather(ls=rows, indices=[4, 0, 1, 2]),
            mb.list_read(ls=one, index=0),
            mb.list_length(ls=rows),
            mb.list_length(ls=one),
        )

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    gathered, unwritten, longer, before = run_mil(program, {"x": x}).values()
    np.testing.assert_array_equal(gathered, np.stack([x[2], x[0], x[0], x[0] * 0]))
    np.testing.assert_array_equal(unwritten, [0, 0])
    assert (int(longer), int(before)) == (5, 2)


def test_a_list_is_not_read_outside(run_mil: Any) -> None:
    @mb.program(
        input_specs=[mb.TensorSpec((2,)), mb.TensorSpec((1,), dtype=types.int32)],
        opset_version=ct.target.iOS17,
    )
    def program(x: Any, at: Any) -> Any:
        pile = mb.make_list(init_length=2, dynamic_length=False, elem_shape=(2,), dtype="fp32")
        pile = mb.list_write(ls=pile, index=mb.squeeze(x=at), value=x)
        return mb.list_read(ls=pile, index=0)

    x = np.ones(2, np.float32)
    assert run_mil(program, {"x": x, "at": np.array([0], np.int32)})
    with pytest.raises(MilError, match="EDGE-MIL-006"):
        run_mil(program, {"x": x, "at": np.array([2], np.int32)})


@pytest.fixture(scope="module")
def summing(placed: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state that sums what it is given; the sum before and after are returned."""

    @mb.program(
        input_specs=[mb.TensorSpec((3,), dtype=types.fp16), mb.StateTensorSpec((3,), types.fp16)],
        opset_version=ct.target.iOS18,
    )
    def program(x: Any, total: Any) -> Any:
        before = mb.read_state(input=total, name="before")
        after = mb.coreml_update_state(state=total, value=mb.add(x=before, y=x))
        return mb.identity(x=before, name="old"), mb.identity(x=after, name="new")

    folder = tmp_path_factory.mktemp("state")
    found: Path = placed(program, folder, opset=ct.target.iOS18, fp16=True)
    return found


def test_state_lives_between_runs(summing: Path) -> None:
    interpreter = Interpreter(summing)
    assert [spec.name for spec in interpreter.states] == ["total"]
    x = np.array([1, 2, 3], np.float16)
    mine, other = interpreter.make_state(), interpreter.make_state()
    total = np.zeros(3, np.float16)
    for _ in range(3):
        found = interpreter.run({"x": x}, state=mine)
        np.testing.assert_array_equal(found["old"], total)
        total = total + x
        np.testing.assert_array_equal(found["new"], total)
    np.testing.assert_array_equal(interpreter.run({"x": x}, state=other)["new"], x)
    np.testing.assert_array_equal(interpreter.run({"x": x})["old"], np.zeros(3, np.float16))
