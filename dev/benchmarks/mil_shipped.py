"""Figure: the op tests that coremltools ships, run against the interpreter.

coremltools carries the tests that hold Apple's runtime to its documentation: for each op programs,
inputs and right answers, which only a Mac can run. Here the same cases run on the interpreter.

    python -m dev.benchmarks.mil_shipped [--files iOS14/test_pool.py ...] [--sample 0.1]

Cases in float32 are compared within the test's own tolerance. Where a test's program computes in
float16 all the same, float16's own step is allowed. What differs by intent is listed in
docs/explanation/interpreter.md.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

#: What float16 may differ by, relative to the largest value expected; the tests' own limit is 0.5.
_HALF = 1e-2


class _State:
    """The state of one conversation, made when the model is known."""

    cells: Any = None


class Shipped:
    """A pytest plugin: puts the interpreter where the tests expect Apple's runtime."""

    def __init__(self, sample: float) -> None:
        self.sample = sample
        self.compared = 0
        self.outcomes: Counter[str] = Counter()
        self._model: Any = None
        self._interpreter: Any = None
        self._replace()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Only mlprogram cases in float32, and of those a sample."""
        picked = random.Random(1)
        items[:] = [
            item
            for item in items
            if "fp16'" not in item.nodeid
            and "neuralnetwork" not in item.nodeid
            and picked.random() < self.sample
        ]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count outcomes."""
        if report.when == "call" or report.outcome == "skipped":
            word = "expected failure" if hasattr(report, "wasxfail") else report.outcome
            self.outcomes[word] += 1

    def _replace(self) -> None:
        import coremltools.converters.mil.testing_utils as utils
        from coremltools.models import MLModel

        utils._IS_MACOS = True
        utils.coremltoolsutils._macos_version = lambda: (15, 0)
        utils.macos_compatible_with_deployment_target = lambda *_: True
        utils.run_core_ml_predict = self.predict
        utils.compare_backend = self.compare
        MLModel.make_state = lambda _: _State()
        MLModel.predict = lambda model, data, state=None: self.predict(model, dict(data), state)

    def predict(self, model: Any, values: dict[str, Any], state: Any = None) -> dict[str, Any]:
        """Run the package of a test's model."""
        from edgeserve.backends.coreml.interpreter import Interpreter

        if model is not self._model:
            function = getattr(model, "function_name", None)
            self._model = model
            self._interpreter = Interpreter(Path(model.package_path), function=function)
        found = self._interpreter
        feed = {spec.name: _fed(values[spec.name], spec, found.images) for spec in found.inputs}
        if state is not None and state.cells is None:
            state.cells = found.make_state()
        answer: dict[str, Any] = found.run(feed, state.cells if state is not None else None)
        return answer

    def compare(
        self,
        mlmodel: Any,
        input_key_values: Any,
        expected_outputs: Any,
        dtype: str = "fp32",
        atol: float = 1e-4,
        rtol: float = 1e-5,
        also_compare_shapes: bool = True,
        state: Any = None,
        allow_mismatch_ratio: float = 0.0,
    ) -> Any:
        """Compare the interpreter's answer with the one the test calls right."""
        from coremltools.converters.mil import testing_utils as utils

        found = self.predict(mlmodel, input_key_values, state)
        half = "FLOAT16" in str(mlmodel.get_spec().mlProgram)
        for name, wanted in (expected_outputs or {}).items():
            got = utils._get_coreml_out_from_dict(found, name)
            if isinstance(wanted, dict):
                wanted = np.asarray(list(wanted.values()))
            if np.asarray(wanted).dtype.kind in "US":
                assert str(got) == str(wanted)
                continue
            wide = np.asarray(wanted, np.float64)
            if also_compare_shapes and wide.shape:
                assert got.shape == wide.shape
            scale = float(np.abs(wide[np.isfinite(wide)]).max(initial=0))
            allowed = max(atol, _HALF * scale) if half else atol
            np.testing.assert_allclose(
                got.astype(np.float64), wide.reshape(got.shape), atol=allowed, rtol=rtol
            )
        self.compared += 1
        return found


def _fed(value: Any, spec: Any, images: dict[str, str]) -> np.ndarray:
    from PIL import Image

    if isinstance(value, Image.Image):
        grey = images[spec.name].startswith("GRAY")
        return np.asarray(value if grey else value.convert("RGB"))
    array = np.asarray(value)
    return (array if array.shape else array.reshape(1)).astype(spec.dtype)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests and print how many agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", nargs="*", help="test files, as iOS14/test_pool.py; all")
    parser.add_argument("--sample", type=float, default=1.0, help="share of the cases")
    options = parser.parse_args(arguments)
    os.environ |= {"PYMIL_TEST_TARGETS": "mlprogram", "INCLUDE_MIL_FP32_UNIT_TESTS": "1"}
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    import coremltools

    home = Path(coremltools.__file__).parent / "converters/mil/mil/ops/tests"
    files = options.files or [str(f.relative_to(home)) for f in sorted(home.glob("*/test_*.py"))]
    plugin = Shipped(options.sample)
    flags = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(home),
        "-W",
        "ignore",
    ]
    flags += ["-c", os.devnull, "--rootdir", str(home), *(str(home / f) for f in files)]
    code = pytest.main(flags, plugins=[plugin])
    outcomes = ", ".join(f"{count} {word}" for word, count in sorted(plugin.outcomes.items()))
    print(f"{plugin.compared} programs compared; {outcomes}")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
