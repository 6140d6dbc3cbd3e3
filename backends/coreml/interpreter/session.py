"""`Interpreter`: a Core ML package, loaded and ready to run on any system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from edgeserve.backends.coreml.interpreter.control_flow import State, StateTensor
from edgeserve.backends.coreml.interpreter.executor import run_plan
from edgeserve.backends.coreml.interpreter.interface import (
    Feature,
    check_feed,
    describe,
    tensor_of_image,
)
from edgeserve.backends.coreml.interpreter.loader import (
    Package,
    choose_function,
    load_function,
    read_package,
    reader_error,
)
from edgeserve.backends.coreml.interpreter.plan import make_plan
from edgeserve.backends.coreml.interpreter.plan_nodes import StepOutput
from edgeserve.backends.coreml.interpreter.values import TORCH, dtype_name
from edgeserve.backends.coreml.spec import operations_of
from edgeserve.errors import EdgeError
from edgeserve.types.tensors import TensorSpec


@dataclass(frozen=True)
class OpInfo:
    """One op of the program, constants left out.

    Attributes:
        name: The program's name of the op.
        type: MIL op type.
        inputs: Names of the values it reads, by parameter.
        outputs: Names of the values it makes: what ``taps`` takes.
        dtypes: MIL types of its outputs ("fp16").
        handles: Debug handles of the exporter's nodes it came from, where the package has them.
        depth: 0 in the function itself, 1 in a block of a branch or loop, ...
    """

    name: str
    type: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    dtypes: tuple[str, ...]
    handles: tuple[int, ...]
    depth: int


class Interpreter:
    """Runs one function of a Core ML package with PyTorch on the CPU.

    Thread-safe: a run keeps everything in a frame of its own.

    Attributes:
        inputs: What the function takes, in the package's order.
        outputs: What it gives.
        states: Its state tensors, which live in a `State` between runs.
        ops: The program's ops in order, those of nested blocks behind the op that holds them.
        precision: "fp16" where float16 results are rounded, "fp32" where they are not.
        function: Name of the function.
        opset: The package's opset, as a specification version.
    """

    def __init__(
        self,
        path: Path,
        *,
        function: str | None = None,
        precision: Literal["auto", "fp32", "fp16"] = "auto",
        taps: Sequence[str] = (),
    ) -> None:
        """Load a package.

        Args:
            path: A ``.mlpackage`` folder or a ``.mlmodel`` file that holds an ML program.
            function: Which function; None: the package's default.
            precision: "auto" and "fp16" round each result that the program types float16;
                "fp32" computes in float32 throughout.
            taps: Inner values to return as well, by name.

        Raises:
            MilError: EDGE-MIL-001 an op is not supported, -002 unreadable package, -003 weights,
                -004 sizes that lie, -005 refused program, -008 unknown tap, -009 unknown function.
        """
        package = read_package(Path(path))
        self.function = choose_function(package, function)
        self.precision = "fp32" if precision == "fp32" else "fp16"
        self._taps = tuple(taps)
        loaded = load_function(package, self.function)
        try:
            self._build(package, loaded)
        except EdgeError:
            raise
        except Exception as error:  # what a description or a constant may hold is endless
            raise reader_error(package.name, error) from error
        _release_constants(loaded)

    def _build(self, package: Package, loaded: Any) -> None:
        self.opset = int(loaded.opset_version)
        self._features = describe(package.spec, loaded, self.function, package.name)
        self.inputs = tuple(feature.spec for feature in self._features.inputs)
        self.outputs = tuple(feature.spec for feature in self._features.outputs)
        self.states = tuple(feature.spec for feature in self._features.states)
        self.ops = tuple(_ops(loaded, package))
        rounding = self.precision != "fp32"
        self._plan = make_plan(loaded, self.opset, package.name, rounding=rounding, taps=self._taps)

    @property
    def images(self) -> dict[str, str]:
        """Colour space of each image input, by name."""
        return {f.spec.name: f.image for f in self._features.inputs if f.image}

    def make_state(self) -> State:
        """Fresh state tensors, all zero, to be passed to several runs in turn."""
        return State({spec.name: StateTensor(_zeros(spec)) for spec in self.states})

    def run(
        self, feed: Mapping[str, np.ndarray], state: State | None = None
    ) -> dict[str, np.ndarray]:
        """Run once.

        Args:
            feed: One array for each of `inputs`; an image input also takes uint8 pixels, height x
                width x 3 RGB (height x width for a grey one).
            state: What the states hold and will hold; None: zeros, forgotten afterwards. One state
                serves one run at a time.

        Returns:
            One array for each of `outputs`, then for each tap (floating taps are float32). The
            probabilities of a classifier are one array, in the order of its classes.

        Raises:
            MilError: EDGE-MIL-006 an op failed, -007 the feed does not fit, -010 an op gave another
                shape than the program says, -011 a loop did not end.
        """
        feed = {name: self._pixels(name, array) for name, array in feed.items()}
        check_feed(self._features, feed)
        tensors: dict[str, Any] = dict((state or self.make_state()).cells)
        for name, array in feed.items():
            tensors[name] = _input_tensor(array, self._plan.inputs[name], self.precision)
        found = run_plan(self._plan, tensors, self._taps)
        results = {
            f.spec.name: _output_array(found[f.spec.name], f) for f in self._features.outputs
        }
        return results | {tap: _plain(found[tap]) for tap in self._taps}

    def _pixels(self, name: str, array: np.ndarray) -> np.ndarray:
        space = self.images.get(name)
        is_raw = space and isinstance(array, np.ndarray) and array.dtype == np.uint8
        return tensor_of_image(array, str(space)) if is_raw else array


def _input_tensor(array: np.ndarray, entry: StepOutput, precision: str) -> Tensor:
    """An input array as the program holds it; never the caller's own memory."""
    tensor = torch.from_numpy(np.array(array, order="C"))
    if entry.half and precision != "fp32":
        tensor = tensor.half()
    return tensor if entry.dtype is None else tensor.to(entry.dtype)


def _output_array(value: Any, feature: Feature) -> np.ndarray:
    """An output as its description says."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    dtype = np.dtype(np.str_ if feature.spec.dtype == "string" else feature.spec.dtype)
    return _plain(value).astype(dtype, copy=False)


def _plain(value: Any) -> np.ndarray:
    return value.numpy().copy() if isinstance(value, Tensor) else np.asarray(value)


def _zeros(spec: TensorSpec) -> Tensor:
    sizes = [size for size in spec.shape if isinstance(size, int)]
    mil = {"float16": "fp16", "float32": "fp32"}.get(spec.dtype, spec.dtype)
    return torch.zeros(sizes, dtype=TORCH[mil])


def _ops(block: Any, package: Package, depth: int = 0) -> list[OpInfo]:
    """The listing of a block, nested ones included."""
    found = []
    for op in block.operations:
        if op.op_type != "const":
            found.append(_info(op, package, depth))
        for inner in op.blocks:
            found += _ops(inner, package, depth + 1)
    return found


def _info(op: Any, package: Package, depth: int) -> OpInfo:
    inputs = [
        (name, each.name)
        for name, var in op.inputs.items()
        for each in (var if isinstance(var, (list, tuple)) else (var,))
    ]
    outputs = tuple(var.name for var in op.outputs)
    handles = tuple(h for name in outputs for h in package.handles.get(name, ()))
    dtypes = tuple(_type_word(var) for var in op.outputs)
    return OpInfo(op.name, op.op_type, tuple(inputs), outputs, dtypes, handles, depth)


def _type_word(var: Any) -> str:
    try:
        return dtype_name(var.dtype)
    except (ValueError, AttributeError):  # a list has no dtype
        return "list"


def _release_constants(block: Any) -> None:
    """Drop the reader's copies of large constants: the plan holds its own tensors."""
    for op in operations_of(block):
        if op.op_type == "const" and getattr(op.outputs[0].val, "nbytes", 0) > 1024:
            op.outputs[0]._sym_val = None
            op.val._sym_val = None
