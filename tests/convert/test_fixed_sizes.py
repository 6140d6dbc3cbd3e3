"""Sizes that cannot vary: fixed at the example's where the export is refused, and said."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeserve import backends
from edgeserve.backends.adapter import Adapter
from edgeserve.backends.torch.export.relax_dynamic_dims import DYNAMIC_HINT
from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.source import export_source, read_export
from edgeserve.convert.target import try_routes
from edgeserve.errors import ConvertError
from edgeserve.types.options import ExportSettings
from edgeserve.types.source import Exported

FORMATS = ("onnx", "tflite", "coreml")

NETS = """
import torch
from torch import nn

OPEN = {0: ("batch", 1, 8), 1: ("length", 2, 40)}


class Placed(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(1, 9, 4))

    def forward(self, x):
        y = torch.tanh(x)
        return y * self.places  # placed


class Looped(nn.Module):
    def forward(self, x):
        state = torch.zeros(x.shape[0], 4)
        for place in range(x.shape[1]):  # looped
            state = torch.tanh(state + x[:, place])
        return state


class Chooses(nn.Module):
    def forward(self, x):
        if x.shape[0] == 1:  # chooses
            return x * 5
        return x + 1


class Inline(nn.Module):
    def forward(self, x):
        return x * (2 if x.shape[1] % 2 else 3)  # inline


class Whole(nn.Module):
    def forward(self, x):
        return x.reshape(18, 4).cumsum(0)  # whole


class ByValues(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class Random(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


def factory(kind, batch=2, length=9, open=OPEN):
    def build():
        torch.manual_seed(1)
        return kind().eval(), (torch.randn(batch, length, 4),), {"dynamic_shapes": {"x": open}}

    return build


placed, looped, chooses = map(factory, (Placed, Looped, Chooses))
inline, whole, by_values, random = map(factory, (Inline, Whole, ByValues, Random))
one = factory(Placed, batch=1)
one_chooses = factory(Chooses, batch=1)
outside = factory(Chooses, batch=1, open={0: ("batch", 2, 8), 1: ("length", 10, 40)})
"""

Run = Callable[..., Exported]


@pytest.fixture
def run(user: Path, tmp_path: Path) -> Run:
    (user / "sized.py").write_text(NETS)

    def run(name: str, shapes: Any = "auto") -> Exported:
        source = parse_source(f"sized:{name}", user)
        out = str(tmp_path / "out")
        return export_source(
            ExportRequest(source=source, out=out, settings=ExportSettings(shapes=shapes))
        )

    return run


def line_of(word: str) -> str:
    lines = NETS.splitlines()
    return f"sized.py:{next(i for i, text in enumerate(lines, 1) if text.endswith('# ' + word))}"


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("placed", ("batch", 9, 4), "'length' is fixed at 9"),
        ("one", ("batch", 9, 4), "'length' is fixed at 9"),
        ("looped", ("batch", 9, 4), "'length' is fixed at 9"),
        ("inline", ("batch", 9, 4), "'length' is fixed at 9"),
        ("chooses", (2, "length", 4), "'batch' is fixed at 2"),
        ("one_chooses", (1, "length", 4), "'batch' is fixed at 1"),
    ],
)
def test_only_what_cannot_vary_is_fixed_and_its_line_is_named(
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    shape: tuple[Any, ...],
    said: str,
) -> None:
    exported = run(name)
    assert exported.signature.inputs[0].shape == shape
    (note,) = exported.notes
    assert said in note
    word = name.removeprefix("one_").replace("one", "placed")
    assert line_of(word) in note
    assert "EDGE-CONVERT-01" in note
    assert DYNAMIC_HINT in note
    assert note in capsys.readouterr().out
    assert read_export(tmp_path / "out").notes == exported.notes


def test_two_sizes_that_make_one_are_fixed_one_after_the_other(run: Run) -> None:
    """18 rows are 2 by 9: with either open the other cannot hold it, so both are fixed."""
    exported = run("whole")
    assert exported.signature.dims == {}
    assert [note.split()[1] for note in exported.notes] == ["'batch'", "'length'"]
    assert all(line_of("whole") in note for note in exported.notes)


@pytest.mark.parametrize("name", ["placed", "looped", "chooses", "inline"])
def test_who_insists_is_refused_with_the_same_code(run: Run, name: str) -> None:
    with pytest.raises(ConvertError) as error:
        run(name, "dynamic")
    assert error.value.code in ("EDGE-CONVERT-013", "EDGE-CONVERT-017")
    assert error.value.code in run(name).notes[0]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("by_values", "EDGE-CONVERT-014"),
        ("random", "EDGE-CONVERT-017"),
        ("outside", "EDGE-CONVERT-013"),
    ],
)
def test_what_a_fixed_size_does_not_help_is_refused_as_before(
    run: Run, name: str, code: str
) -> None:
    """Choices by value, random numbers, and an example outside of its own range."""
    for shapes in ("auto", "dynamic"):
        with pytest.raises(ConvertError) as error:
            run(name, shapes)
        assert error.value.code == code


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["looped", "one_chooses"])
def test_the_files_answer_as_the_module(run: Run, tmp_path: Path, name: str, format: str) -> None:
    """With the size that was left open at other values than the example's."""
    exported = run(name)
    backend, out = backends.get(format), tmp_path / format
    artifact = try_routes(backend, exported, tmp_path / "out", out)
    sizes = [(1, 9), (5, 9)] if name == "looped" else [(1, 9), (1, 20)]
    import sized  # type: ignore[import-not-found]

    module, _, _ = getattr(sized, name)()
    output = exported.signature.outputs[0].name
    if name == "one_chooses" and format == "tflite" and "length" not in exported.signature.padded:
        sizes = sizes[:1]
    with backend.load(artifact, out, threads=1) as session:
        adapter = Adapter(session, exported.signature)
        for rows, length in sizes:
            x = np.random.default_rng(rows).standard_normal((rows, length, 4)).astype(np.float32)
            wanted = module(torch.from_numpy(x)).numpy()
            np.testing.assert_allclose(adapter.run({"x": x})[output], wanted, rtol=0, atol=2e-5)


def test_the_options_words_are_checked() -> None:
    from edgeserve.errors import UsageError
    from edgeserve.pipeline.options import check_convert_options
    from edgeserve.types.options import ConvertOptions

    assert check_convert_options(ConvertOptions(source="a:b", out="x")).shapes == "auto"
    with pytest.raises(UsageError) as error:
        check_convert_options(ConvertOptions(source="a:b", out="x", shapes="static"))
    assert error.value.code == "EDGE-USAGE-001"


def test_a_note_is_in_the_manifest_and_the_reports(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole command: it says the note, and every report holds it."""
    from edgeserve.pipeline.convert import convert
    from edgeserve.pipeline.stage_context import Quiet
    from edgeserve.types.options import ConvertOptions

    class Heard(Quiet):
        def note(self, text: str) -> None:
            said.append(text)

    said: list[str] = []
    (user / "sized.py").write_text(textwrap.dedent(NETS))
    monkeypatch.chdir(user)
    outcome = convert(ConvertOptions(source="sized:placed", out=str(tmp_path / "ws")), Heard())
    assert any("'length' is fixed at 9" in line and line_of("placed") in line for line in said)
    (report,) = outcome.reports.values()
    assert any("'length' is fixed at 9" in note for note in report.notes)
    assert outcome.manifest is not None
    assert outcome.manifest.artifacts[0].judgement is not None
    assert outcome.manifest.artifacts[0].judgement.verdict == "pass"
