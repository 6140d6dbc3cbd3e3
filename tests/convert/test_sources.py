"""Other sources: foreign programs and workspaces."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.torch import reference_artifact
from edgeserve.convert import ExportRequest, parse_source
from edgeserve.convert.source import export_source
from edgeserve.errors import ConvertError
from edgeserve.types.base import encode
from edgeserve.types.options import ExportSettings
from edgeserve.types.source import Exported

Export = Callable[[str], Exported]


class Foreign(nn.Module):
    """Takes a nested input and one by name only; its sizes are related."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(
        self, x: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], *, scale: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return {"y": self.linear(x) * scale + pair[0], "n": pair[1] + 1}


@pytest.fixture
def foreign(user: Path) -> nn.Module:
    """A program in the user's folder: foreign.pt2 with examples, bare.pt2 without."""
    module = Foreign().eval()
    dim = torch.export.Dim("n", min=1, max=7)
    examples = (torch.randn(3, 3), (torch.randn(3), torch.tensor(4)))
    program = torch.export.export(
        module,
        examples,
        {"scale": torch.ones(1)},
        dynamic_shapes={"x": {0: dim}, "pair": (None, None), "scale": None},
    )
    torch.export.save(program, user / "foreign.pt2")
    program._example_inputs = None
    torch.export.save(program, user / "bare.pt2")
    return module


@pytest.mark.parametrize("name", ["foreign.pt2", "bare.pt2"])
def test_a_foreign_program_answers_as_its_module(
    export: Export, foreign: nn.Module, tmp_path: Path, name: str
) -> None:
    exported = export(name)
    signature = exported.signature
    assert [s.name for s in signature.inputs] == ["x", "pair_0", "pair_1", "scale"]
    assert [s.name for s in signature.outputs] == ["y", "n"]
    assert signature.dims == {"x_dim0": (1, 7)}
    assert {w.name for w in exported.weights} == {"linear.weight", "linear.bias"}
    x, offset = torch.randn(5, 3), torch.randn(3)
    right = foreign(x, (offset, torch.tensor(9)), scale=torch.tensor([2.0]))
    feed = {
        "x": x.numpy(),
        "pair_0": offset.numpy(),
        "pair_1": np.array(9),
        "scale": np.array([2], np.float32),
    }
    artifact = backends.get("onnx").export(exported, tmp_path / "out", tmp_path / "onnx")
    for session in (
        backends.get("torch").load(reference_artifact(exported), tmp_path / "out"),
        backends.get("onnx").load(artifact, tmp_path / "onnx"),
    ):
        with session:
            got = session.run(feed)
        np.testing.assert_allclose(got["y"], right["y"].detach().numpy(), rtol=0, atol=1e-5)
        assert got["n"] == 10


def test_a_program_that_could_run_code_is_refused_and_may_be_trusted(
    export: Export, foreign: nn.Module, user: Path, tmp_path: Path
) -> None:
    import zipfile

    with zipfile.ZipFile(user / "foreign.pt2", "a") as archive:
        archive.writestr("foreign/extra/notes.txt", "hello")
    with pytest.raises(ConvertError) as error:
        export("foreign.pt2")
    assert error.value.code == "EDGE-CONVERT-018"
    assert "--trust-pickle" in error.value.hint
    request = ExportRequest(
        source=parse_source("foreign.pt2", user),
        out=str(tmp_path / "out"),
        settings=ExportSettings(trust_pickle=True),
    )
    assert export_source(request).signature.dims == {"x_dim0": (1, 7)}


@pytest.mark.filterwarnings("default")
def test_what_is_no_program_is_refused(export: Export, user: Path, tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2)}, user / "weights.pt2")
    (user / "noise.pt2").write_bytes(b"noise" * 100)
    for name, code in (("weights.pt2", "EDGE-CONVERT-018"), ("noise.pt2", "EDGE-CONVERT-019")):
        with pytest.raises(ConvertError) as error:
            export(name)
        assert error.value.code == code
        trusted = ExportRequest(
            source=parse_source(name, user),
            out=str(tmp_path / "out"),
            settings=ExportSettings(trust_pickle=True),
        )
        with pytest.raises(ConvertError) as error:
            export_source(trusted)
        assert error.value.code == "EDGE-CONVERT-019"


def test_a_workspace_gives_its_own_export(export: Export, user: Path, tmp_path: Path) -> None:
    first = export("good:factory")
    shutil.copytree(tmp_path / "out", user / "ws" / "source")
    shutil.rmtree(tmp_path / "out")
    again = export("ws")
    assert again == first
    for entry in (first.program, first.examples):
        assert (tmp_path / "out" / entry.path).read_bytes() == (
            user / "ws" / "source" / entry.path
        ).read_bytes()
    request = ExportRequest(
        source=parse_source("ws", user),
        out=str(tmp_path / "out"),
        settings=ExportSettings(task="feature-extraction"),
    )
    assert export_source(request).task == "feature-extraction"


@pytest.mark.parametrize("damage", ["missing", "changed", "no json", "other json"])
def test_a_damaged_workspace_is_refused(
    export: Export, user: Path, tmp_path: Path, damage: str
) -> None:
    export("good:factory")
    folder = user / "ws" / "source"
    shutil.copytree(tmp_path / "out", folder)
    if damage == "missing":
        (folder / "model.pt2").unlink()
    elif damage == "changed":
        (folder / "examples.npz").write_bytes((folder / "examples.npz").read_bytes() + b"x")
    else:
        (folder / "source.json").write_text("{" if damage == "no json" else "{}")
    with pytest.raises(ConvertError) as error:
        export("ws")
    assert error.value.code == "EDGE-CONVERT-024"


def test_requests_survive_their_way_to_a_worker(user: Path) -> None:
    from edgeserve.types.base import decode

    request = ExportRequest(source=parse_source("good:factory", user), out="/x")
    assert decode(encode(request), ExportRequest) == request
