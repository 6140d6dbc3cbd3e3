"""Fixtures of the interpreter's tests: run a MIL program, and one op both ways.

`run_mil` runs a program that was built with coremltools' builder. `both_ways` builds an op twice:
over placeholders, for the interpreter, and over constants, where coremltools' own numpy
`value_inference` computes it. `converted` takes a PyTorch module through `ct.convert` and back.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import coremltools as ct
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder, Function, Placeholder, Program, types

from edgeserve.backends.coreml.coremltools_import import remove_weight_folders
from edgeserve.backends.coreml.interpreter.executor import run_plan
from edgeserve.backends.coreml.interpreter.plan import make_plan
from edgeserve.backends.coreml.interpreter.values import tensor_of
from edgeserve.backends.torch.program.io import log_warnings

Arrays = dict[str, np.ndarray]
Both = tuple[list[np.ndarray], list[np.ndarray]]

TYPES = {
    "float16": types.fp16,
    "float32": types.fp32,
    "int32": types.int32,
    "bool": types.bool,
    "int8": types.int8,
    "uint8": types.uint8,
    "int16": types.int16,
    "uint16": types.uint16,
}


def run_program(program: Any, feed: Arrays, precision: str = "fp32") -> Arrays:
    function = program.functions["main"]
    opset = int(function.opset_version)
    plan = make_plan(function, opset, "test", rounding=precision != "fp32")
    tensors = {name: tensor_of(array, function.inputs[name].dtype) for name, array in feed.items()}
    return {
        name: value.numpy() if isinstance(value, torch.Tensor) else value
        for name, value in run_plan(plan, tensors).items()
    }


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same numbers."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def frozen_heap() -> Iterator[None]:
    """Keep the collector, which ct.convert runs each time, from walking over the imports."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def run_mil() -> Callable[..., Arrays]:
    """``run_mil(program, feed, precision="fp32")`` gives the outputs by name, as numpy."""
    return run_program


def built(name: str, opset: Any, tensors: Arrays, attributes: dict[str, Any]) -> Any:
    """A program of one op whose ``tensors`` are inputs and whose ``attributes`` are constants.

    A list of arrays among the attributes' values stays as it is; a list input of tensors is given
    as ``tensors={"values.0": ..., "values.1": ...}``.
    """
    keys = {name: name.replace(".", "_") for name in tensors}
    places = {
        keys[key]: Placeholder(array.shape, TYPES[array.dtype.name])
        for key, array in tensors.items()
    }
    with Function(places, opset_version=opset) as function:
        given: dict[str, Any] = {}
        for key in tensors:
            base, _, index = key.partition(".")
            var = function.inputs[keys[key]]
            if index:
                given.setdefault(base, []).append(var)
            else:
                given[base] = var
        outputs = getattr(Builder, name)(**given, **attributes)
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        function.set_outputs(outputs)
    program = Program()
    program.add_function("main", function)
    return program, [var.name for var in outputs], keys


def inferred(
    name: str, opset: Any, tensors: Arrays, attributes: dict[str, Any]
) -> list[np.ndarray]:
    """What coremltools' own numpy code says of the op, over constants."""
    with Function({"unused": Placeholder((1,), types.fp32)}, opset_version=opset) as function:
        given: dict[str, Any] = {}
        for key, array in tensors.items():
            base, _, index = key.partition(".")
            if index:
                given.setdefault(base, []).append(array)
            else:
                given[base] = array
        outputs = getattr(Builder, name)(**given, **attributes)
        outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        function.set_outputs(list(outputs))
    assert all(var.val is not None for var in outputs), f"{name} has no value_inference here"
    return [np.asarray(var.val) for var in outputs]


@pytest.fixture(scope="session")
def both_ways() -> Callable[..., Both]:
    """``both_ways(op, tensors, opset=iOS17, **attributes)``: (interpreter's, coremltools')."""

    def run(name: str, tensors: Arrays, opset: Any = ct.target.iOS17, **attributes: Any) -> Both:
        program, names, keys = built(name, opset, tensors, attributes)
        found = run_program(program, {keys[key]: array for key, array in tensors.items()})
        return [found[each] for each in names], inferred(name, opset, tensors, attributes)

    return run


@pytest.fixture(scope="session")
def one_op() -> Callable[..., list[np.ndarray]]:
    """``one_op(op, tensors, opset=iOS17, precision="fp32", **attributes)``: the outputs."""

    def run(
        name: str,
        tensors: Arrays,
        opset: Any = ct.target.iOS17,
        precision: str = "fp32",
        **attributes: Any,
    ) -> list[np.ndarray]:
        program, names, keys = built(name, opset, tensors, attributes)
        feed = {keys[key]: array for key, array in tensors.items()}
        found = run_program(program, feed, precision)
        return [found[each] for each in names]

    return run


@pytest.fixture(scope="session")
def converted() -> Callable[..., tuple[Any, list[np.ndarray]]]:
    """``converted(module, *inputs)``: (PyTorch's outputs, the interpreter's) after ct.convert.

    ``converted.ops`` is the set of op types of the last program.
    """

    def run(
        module: torch.nn.Module, *inputs: torch.Tensor, opset: Any = ct.target.iOS17
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        names = [f"in_{i}" for i in range(len(inputs))]
        with log_warnings():
            exported = torch.export.export(module.eval(), inputs).run_decompositions()
            program = ct.convert(
                exported,
                convert_to="milinternal",
                minimum_deployment_target=opset,
                compute_precision=ct.precision.FLOAT32,
                inputs=[_tensor_type(n, x) for n, x in zip(names, inputs, strict=True)],
            )
        with torch.no_grad():
            wanted = module(*inputs)
        flat: Sequence[Any] = wanted if isinstance(wanted, (tuple, list)) else [wanted]
        feed = {n: x.numpy() for n, x in zip(names, inputs, strict=True)}
        run.ops = _op_types(program)  # what the last module became
        found = run_program(program, feed)
        return [x.detach().numpy() for x in flat], list(found.values())

    return run


def _op_types(program: Any) -> set[str]:
    return {op.op_type for op in program.functions["main"].operations} - {"const"}


def _tensor_type(name: str, value: torch.Tensor) -> Any:
    dtype = np.int32 if value.dtype in (torch.int32, torch.int64) else np.float32
    return ct.TensorType(name=name, shape=value.shape, dtype=dtype)


@pytest.fixture(scope="session")
def agree() -> Callable[..., None]:
    """``agree(found, wanted, tol=1e-5)``: shapes are equal, numbers within ``tol`` of the scale."""

    def check(found: Sequence[Any], wanted: Sequence[Any], tol: float = 1e-5) -> None:
        assert len(found) == len(wanted)
        for index, (got, right) in enumerate(zip(found, wanted, strict=True)):
            right = right.numpy() if isinstance(right, torch.Tensor) else np.asarray(right)
            assert got.shape == right.shape, index
            scale = max(float(np.abs(right, dtype=np.float64).max(initial=0)), 1e-3)
            np.testing.assert_allclose(
                got.astype(np.float64),
                right.astype(np.float64),
                rtol=0,
                atol=tol * scale,
                err_msg=f"output {index}",
            )

    return check


@pytest.fixture(scope="session")
def placed() -> Callable[..., Path]:
    """``placed(source, folder, opset=iOS17, fp16=False, **options)``: the path of a package.

    ``source`` is a program of the builder or an exported program of PyTorch; the options are those
    of ``ct.convert``. With ``edit`` the model is passed through that function before it is saved.
    """

    def run(
        source: Any,
        folder: Path,
        *,
        opset: Any = ct.target.iOS17,
        fp16: bool = False,
        edit: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Path:
        path = folder / "model.mlpackage"
        precision = ct.precision.FLOAT16 if fp16 else ct.precision.FLOAT32
        with log_warnings(), remove_weight_folders():
            model = ct.convert(
                source,
                convert_to="mlprogram",
                compute_precision=precision,
                skip_model_load=True,
                minimum_deployment_target=opset,
                **options,
            )
            model = edit(model) if edit else model
            model.save(str(path))
        return path

    return run
