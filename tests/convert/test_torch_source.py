"""Hostile and unlucky factories: every fault has a code, the user's own line and a way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeserve import jobs
from edgeserve.convert import ReadBackRequest
from edgeserve.errors import ConvertError
from edgeserve.types.source import Exported

Write = Callable[[str, str], None]
Export = Callable[[str], Any]


def refused(export: Export, source: str) -> ConvertError:
    with pytest.raises(ConvertError) as error:
        export(source)
    assert "\n" not in error.value.message + error.value.hint
    return error.value


# the module


def test_a_missing_module_names_the_nearest(export: Export) -> None:
    error = refused(export, "goood:factory")
    assert (error.code, error.hint) == ("EDGE-CONVERT-004", "did you mean 'good'?")
    error = refused(export, "no.such.module:factory")
    assert error.code == "EDGE-CONVERT-004"


def test_a_relative_import_without_its_package_is_told_how_to_be_called(
    export: Export, write: Write
) -> None:
    write("relative", "from .beside import net\n")
    error = refused(export, "relative:factory")
    assert (error.code, error.source_line) == ("EDGE-CONVERT-005", "relative.py:1")
    assert ".relative before the colon" in error.hint


def test_a_module_that_lacks_a_package_is_told_at_its_line(export: Export, write: Write) -> None:
    write("needs", "import os\nimport a_package_nobody_has\n")
    error = refused(export, "needs:factory")
    assert error.code == "EDGE-CONVERT-005"
    assert "a_package_nobody_has" in error.message
    assert error.source_line == "needs.py:2"


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("x = 1\ny = 1 / 0\n", "ZeroDivisionError", 2),
        ("x = 1\n\ndef f(:\n", "SyntaxError", 3),
        ("import sys\nsys.exit(3)\n", "sys.exit(3)", 2),
        ("raise RuntimeError\n", "RuntimeError: no message", 1),
        ("raise ValueError('one\\ntwo')\n", "ValueError: one", 1),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt: no message", 1),
    ],
)
def test_a_module_that_raises_is_told_at_its_line(
    export: Export, write: Write, text: str, said: str, line: int
) -> None:
    write("raises", text)
    error = refused(export, "raises:factory")
    assert error.code == "EDGE-CONVERT-005"
    assert said in error.message
    assert error.source_line == f"raises.py:{line}"


def test_a_module_cannot_stand_before_an_installed_one(export: Export, write: Write) -> None:
    """The user's folder is appended: its json.py does not break everybody else's."""
    write("json", "raise RuntimeError('shadow')\n")
    assert export("good:factory").signature.batch_dim == "batch"


# the factory


def test_a_missing_factory_names_the_nearest(export: Export) -> None:
    error = refused(export, "good:factry")
    assert (error.code, error.hint) == ("EDGE-CONVERT-006", "did you mean 'factory'?")
    assert "good.py" in error.message
    assert refused(export, "good:Net.small").code == "EDGE-CONVERT-006"


@pytest.mark.parametrize("value", ["3", "Net()", "None", "(Net(), 1)"])
def test_what_is_no_function_is_refused(export: Export, write: Write, value: str) -> None:
    write("value", f"from good import Net\nfactory = {value}\n")
    assert refused(export, "value:factory").code == "EDGE-CONVERT-006"


def test_a_factory_with_arguments_is_refused(export: Export, write: Write) -> None:
    write("asks", "def factory(size, *, deep):\n    pass\n")
    error = refused(export, "asks:factory")
    assert error.code == "EDGE-CONVERT-008"
    assert "'size'" in error.message


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("raise KeyError('weights')", "KeyError: 'weights'", 5),
        ("import sys; sys.exit('enough')", "sys.exit('enough')", 5),
        ("open('weights.bin')", "FileNotFoundError", 5),
        ("helper()", "ZeroDivisionError", 2),
        ("torch.zeros(2).reshape(3)", "RuntimeError", 5),
        ("input('name? ')", "EOFError", 5),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: no message", 5),
        ("raise GeneratorExit('odd')", "GeneratorExit: odd", 5),
        ("raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})", "raises ZeroDivision", 5),
        ("raise ValueError('m' * (64 << 20))", "ValueError: mmm", 5),
    ],
)
def test_a_factory_that_raises_is_told_at_its_line(
    export: Export, write: Write, monkeypatch: pytest.MonkeyPatch, text: str, said: str, line: int
) -> None:
    """The line is the user's own, however deep below it the exception was raised."""
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO())
    write("raising", f"def helper():\n    1 / 0\ndef factory():\n    import torch\n    {text}\n")
    error = refused(export, "raising:factory")
    assert error.code == "EDGE-CONVERT-007"
    assert said in error.message
    assert error.source_line == f"raising.py:{line}"
    if "FileNotFound" in said:
        assert "Path(__file__)" in error.hint


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("Net()", "Net"),
        ("None", "NoneType"),
        ("(Net(),)", "tuple of 1"),
        ("(Net(), (x,), {}, 1)", "tuple of 4"),
        ("(Net, (x,))", "type"),
        ("({'a': x}, (x,))", "dict"),
        ("(Net(), (x,), ['labels'])", "list"),
        ("((x,), Net())", "tuple"),
        ("(lambda x: x, (x,))", "function"),
    ],
)
def test_a_wrong_answer_is_refused(export: Export, write: Write, value: str, said: str) -> None:
    write(
        "wrong",
        f"import torch\nfrom good import Net\nx = torch.ones(1)\n"
        f"def factory():\n    return {value}\n",
    )
    error = refused(export, "wrong:factory")
    assert error.code == "EDGE-CONVERT-009"
    assert said in error.message


def steps(step: str) -> str:
    """An option with one step in it."""
    return f"'processing': {{'inputs': [{{'name': 'image', 'steps': [{{'step': '{step}'}}]}}]}}"


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        ("'output_name': ['y']", "'output_name'", "'output_names'"),
        ("'colour': 1", "'colour'", "dynamic_shapes"),
        ("'output_names': 'logits'", "str", "factory"),
        ("'labels': ['a', 3]", "3", "factory"),
        ("'task': 'image-clasification'", "image-clasification", "'image-classification'"),
        ("'task': 'chess'", "'chess'", "leave it out"),
        ("'processing': 'imagenet'", "str", "factory"),
        (steps("blur/1"), "blur/1", "spec/processing.md"),
        (steps("resize/1"), "height", "spec/processing.md"),
        ("'fields': {'boxes': 'boxes'}", "['boxes']", "output_names"),
        ("'fields': ['boxes']", "['boxes']", "factory"),
        ("'reference': 'not a reference'", "not a reference", "factory"),
        ("'reference': lambda x: x", "<lambda>", "factory"),
    ],
)
def test_a_wrong_option_is_refused(
    export: Export, write: Write, options: str, said: str, hint: str
) -> None:
    write(
        "option",
        f"import good\ndef factory():\n    m, x, _ = good.factory()\n"
        f"    return m, x, {{{options}}}\n",
    )
    error = refused(export, "option:factory")
    assert error.code == "EDGE-CONVERT-010"
    assert said in error.message
    assert hint in error.hint


# what is exported


def test_everything_said_is_kept(export: Export, write: Write, tmp_path: Path) -> None:
    write(
        "full",
        """
        import good, torch
        def server(x): return x
        def factory():
            m, x, options = good.factory()
            steps = [{"step": "decode/1"}, {"step": "resize/1", "height": 8, "width": 8},
                     {"step": "normalize/1", "scale": [1/255]*3, "bias": [0.0]*3},
                     {"step": "layout/1", "order": "CHW"}]
            return m, x, options | {
                "task": "image-classification", "labels": list("abcde"), "reference": server,
                "fields": {"logits": "logits"}, "input_names": None,
                "processing": {"inputs": [{"name": "image", "steps": steps}],
                               "outputs": [{"step": "softmax/1", "output": "logits"},
                                           {"step": "top_k/1", "output": "logits", "k": 2}]},
            }
        """,
    )
    exported = export("full:factory")
    assert exported.task == "image-classification"
    assert exported.labels == ("a", "b", "c", "d", "e")
    assert exported.fields == {"logits": "logits"}
    assert exported.reference == "full:server"
    assert [type(s).__name__ for s in exported.processing.inputs[0].steps] == [
        "Decode",
        "Resize",
        "Normalize",
        "Layout",
    ]
    assert exported.source.location == "full:factory"
    from edgeserve.types.base import decode
    from edgeserve.types.source import Exported

    assert decode((tmp_path / "out" / "source.json").read_bytes(), Exported) == exported


def test_random_weights_are_the_same_every_time(export: Export) -> None:
    first, again = export("good:factory"), export("good:factory")
    assert first.weights == again.weights
    assert first.graph_sha256 == again.graph_sha256


def test_processing_that_does_not_fit_the_model_is_refused(export: Export, write: Write) -> None:
    from edgeserve.errors import ProcessingError

    write(
        "unfit",
        """
        import good
        def factory():
            m, x, options = good.factory()
            return m, x, options | {"task": "image-classification", "processing": {
                "outputs": [{"step": "top_k/1", "output": "no-such-output"}]}}
        """,
    )
    with pytest.raises(ProcessingError):
        export("unfit:factory")


# the exported program


REGISTERS = """
import torch
from torch import nn

LIBRARY = torch.library.Library("aten", "FRAGMENT")
LIBRARY.define("of_the_user(Tensor x) -> Tensor")
LIBRARY.impl("of_the_user", lambda x: x * 3, "CPU")
torch.library.register_fake("aten::of_the_user", lambda x: torch.empty_like(x))

class Net(nn.Module):
    def forward(self, x):
        return torch.ops.aten.of_the_user(x) + 1

def factory():
    return Net(), (torch.ones(1, 3),)
"""


def test_a_program_that_only_the_users_process_can_run_is_refused_before_the_formats(
    export: Export, write: Write, tmp_path: Path
) -> None:
    """Another process knows the operators of PyTorch, not what the user's module adds to them."""
    request = ReadBackRequest(source_folder=str(tmp_path / "out"))
    export("good:factory")
    jobs.run("edgeserve.convert.source:read_back", request, Exported, tmp_path / "log", timeout=60)
    write("registers", REGISTERS)
    export("registers:factory")
    with pytest.raises(ConvertError) as error:
        jobs.run("edgeserve.convert.source:read_back", request, Exported, tmp_path / "log")
    assert error.value.code == "EDGE-CONVERT-086"
    assert "of_the_user" in error.value.message
