"""The machinery: the table of kernels, what lives how long, what is computed at load."""

from __future__ import annotations

from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder as mb  # noqa: N813 - its users' name for it
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

from edgeserve.backends.coreml.interpreter import supported_ops
from edgeserve.backends.coreml.interpreter.executor import run_plan, run_step
from edgeserve.backends.coreml.interpreter.plan import make_plan
from edgeserve.backends.coreml.interpreter.plan_nodes import peak_elements
from edgeserve.backends.coreml.interpreter.registry import find, kernel

IOS17 = ct.target.iOS17


def test_every_op_of_coremltools_is_known() -> None:
    """Constants are the plan's own; `_const_symbolic` is never written to a file."""
    assert set(SSAOpRegistry.core_ops) - set(supported_ops()) == {"const", "_const_symbolic"}


def test_the_newest_kernel_that_the_opset_allows() -> None:
    names = {find("reshape", opset, "p").function.__name__ for opset in (6, 7)}
    assert names == {"reshape"}
    assert {find("reshape", opset, "p").function.__name__ for opset in (8, 9, 10)} == {
        "reshape_from_right"
    }


def test_two_kernels_for_one_op_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="two kernels"):
        kernel("reshape", since="ios17")(lambda x, shape: x)


def planned(program: Any, taps: tuple[str, ...] = ()) -> Any:
    function = program.functions["main"]
    return make_plan(function, int(function.opset_version), "test", rounding=True, taps=taps)


@pytest.fixture(scope="module")
def chain() -> Any:
    """Twenty additions in a row, and the first sum once more at the end."""

    @mb.program(input_specs=[mb.TensorSpec((100,))], opset_version=IOS17)
    def program(x: Any) -> Any:
        first = y = mb.add(x=x, y=np.float32(1), name="first")
        for _ in range(19):
            y = mb.add(x=y, y=x)
        return mb.mul(x=y, y=first)

    return program


def test_a_value_dies_with_its_last_reader(chain: Any) -> None:
    plan = planned(chain)
    assert peak_elements(plan.block) == 300  # the first sum, an older and a newer one
    frame: list[Any] = [None] * plan.size
    frame[plan.inputs["x"].slot] = torch.ones(100)
    alive = []
    for step in plan.block.steps:
        run_step(step, frame)
        for slot in step.dead:
            frame[slot] = None
        alive.append(sum(value is not None for value in frame))
    assert max(alive) == 3, "x, the first sum and the newest"
    assert alive[-1] == 1, "the result alone"


def test_a_tapped_value_stays(chain: Any) -> None:
    found = run_plan(planned(chain, ("first",)), {"x": torch.ones(100)}, ("first",))
    assert found["first"].tolist() == [2.0] * 100


def test_constant_steps_are_computed_at_load() -> None:
    @mb.program(input_specs=[mb.TensorSpec((2, 3))], opset_version=IOS17)
    def program(x: Any) -> Any:
        sizes = mb.concat(values=[np.int32(3), np.int32(2)], axis=0)
        return mb.reshape(x=x, shape=mb.mul(x=sizes, y=np.int32(1)))

    assert [step.op_type for step in planned(program).block.steps] == ["reshape"]


def test_float16_results_are_rounded_and_selections_left_alone() -> None:
    @mb.program(input_specs=[mb.TensorSpec((4,), dtype=types.fp16)], opset_version=IOS17)
    def program(x: Any) -> Any:
        return mb.exp(x=mb.relu(x=mb.mul(x=x, y=np.float16(0.1))), name="y")

    plan = planned(program)
    rounded = {step.op_type: step.outputs[0].rounded for step in plan.block.steps}
    assert rounded == {"mul": True, "relu": False, "exp": True}
    x = np.array([1, -2, 30, 200], np.float16)
    found = run_plan(plan, {"x": torch.from_numpy(x).float()})["y"].numpy()
    half = (x.astype(np.float32) * np.float32(np.float16(0.1))).astype(np.float16)
    with np.errstate(over="ignore"):
        right = np.exp(np.maximum(half, 0).astype(np.float32)).astype(np.float16)
    assert np.isinf(right[-1])  # e^20 is beyond float16, and stays so
    np.testing.assert_array_equal(found, right.astype(np.float32))
