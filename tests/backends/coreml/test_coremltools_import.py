"""coremltools is imported without the packages that it only looks for, which others still get."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from edgeserve.backends.coreml.coremltools_import import (
    _OptionalImportBlocker,
    coremltools,
    quiet,
    remove_weight_folders,
    validate_once,
)

CODE = """
import sys
from edgeserve.backends.coreml.coremltools_import import coremltools

ct = coremltools()
print(ct.__version__, coremltools() is ct)
print(sorted({"sklearn", "transformers", "torchao"} & set(sys.modules)))
print(any(type(hook).__name__ == "_NotAsked" for hook in sys.meta_path))
"""


def test_the_import_loads_no_framework_that_plays_no_part() -> None:
    for name in ("sklearn", "transformers", "torchao"):
        assert importlib.util.find_spec(name), "there must be something to leave out"
    command = [sys.executable, "-P", "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True)
    version, loaded, hooked = done.stdout.splitlines()
    assert version.endswith("True"), done.stderr
    assert (loaded, hooked) == ("[]", "False")
    assert "has not been tested with coremltools" not in done.stderr


@pytest.mark.parametrize(
    ("asking", "said"),
    [
        ("coremltools._deps", "left out"),
        ("coremltools", "left out"),
        ("mine", "No module named"),
        ("coremltools_of_mine", "No module named"),
    ],
)
def test_whoever_else_asks_meanwhile_gets_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, asking: str, said: str
) -> None:
    """The package is not installed here: what matters is who says so."""
    monkeypatch.setattr(sys, "meta_path", [_OptionalImportBlocker(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match=said):
        exec("import xgboost", {"__name__": asking})


def test_warnings_are_kept_back_only_for_a_while() -> None:
    logger = logging.getLogger("coremltools")
    before = logger.level
    with quiet():
        assert not logger.isEnabledFor(logging.WARNING)
    assert logger.level == before


def test_folders_of_weights_are_removed_without_the_collector() -> None:
    coremltools()
    from coremltools.converters.mil import converter

    with remove_weight_folders():
        made = converter._tempfile.TemporaryDirectory()
        with remove_weight_folders():  # a conversion within another keeps to its own
            inner = converter._tempfile.TemporaryDirectory()
        assert (Path(made.name).is_dir(), Path(inner.name).exists()) == (True, False)
    assert converter._tempfile is tempfile
    assert not Path(made.name).exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del made, inner


def test_programs_are_still_checked_before_they_are_written() -> None:
    coremltools()
    from coremltools.converters.mil import mil
    from coremltools.converters.mil.backend.mil import load
    from coremltools.converters.mil.mil import Builder

    @Builder.program(input_specs=[Builder.TensorSpec(shape=(2,))])
    def program(x: object) -> object:
        return Builder.relu(x=Builder.sin(x=x))

    real = mil.Program.validate
    first, last = program.functions["main"].operations
    stranger = type(first.outputs[0])("gone", first.outputs[0].sym_type)
    last._input_vars["x"] = stranger
    with validate_once():
        program.validate()
        writer = {"__name__": load.__name__, "program": program}
        with pytest.raises(ValueError, match="gone"):
            exec("program.validate(check_essential_scope=True)", writer)
    assert mil.Program.validate is real
    with pytest.raises(ValueError, match="gone"):
        program.validate()
