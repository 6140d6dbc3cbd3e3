"""The command of a hint is the one for this installation: PEP 610's forms, read by pip's rules."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from edgeserve import codes, installation
from edgeserve.installation import DISTRIBUTION, install_command, upgrade_command

REQUIRES = """\
Requires-Dist: numpy>=2.0
Requires-Dist: pillow>=12; extra == "onnx"
Requires-Dist: onnxruntime>=1.20 ; extra == "onnx"
Requires-Dist: uvloop>=0.23; sys_platform != "win32" and extra == "serve"
Requires-Dist: NAME[serve]; extra == "ray"
Requires-Dist: ray[serve]>=2.60; extra == "ray"
""".replace("NAME", DISTRIBUTION)


@pytest.fixture
def installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[dict[str, Any] | None], None]]:
    """Pretend that the package was installed, with this origin (None: from an index)."""
    (info := tmp_path / "site" / f"{DISTRIBUTION}-1.0.dist-info").mkdir(parents=True)
    head = f"Metadata-Version: 2.4\nName: {DISTRIBUTION}\nVersion: 1.0\n"
    (info / "METADATA").write_text(head + REQUIRES)
    monkeypatch.setattr(metadata, "distribution", lambda _: metadata.Distribution.at(info))
    monkeypatch.setattr(installation, "_source_tree", lambda: None)

    def write(origin: dict[str, Any] | None) -> None:
        if origin is not None:
            (info / "direct_url.json").write_text(json.dumps(origin))
        installation._direct_url.cache_clear()

    yield write
    installation._direct_url.cache_clear()


def requirement(command: str) -> Requirement:
    """The one requirement of a command, as pip reads it after the shell has."""
    *head, word = shlex.split(command)
    assert head[:2] == ["pip", "install"]
    return Requirement(word)


@pytest.mark.parametrize("git", [True, False])
def test_a_source_tree_is_installed_again_in_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, git: bool
) -> None:
    tree = tmp_path / "a clone"
    (tree / "src" / "edgeserve").mkdir(parents=True)
    (tree / "pyproject.toml").write_text(f'[project]\nname = "{DISTRIBUTION}"\n')
    if git:
        (tree / ".git").mkdir()
    monkeypatch.setattr(installation, "__file__", str(tree / "src" / "edgeserve" / "x.py"))
    installation._source_tree.cache_clear()
    words = shlex.split(install_command("onnx", "text"))
    assert words == ["pip", "install", "-e", f"{tree}[onnx,text]"]
    assert upgrade_command().startswith(f"git -C '{tree}' pull && " if git else "pip install -U ")
    installation._source_tree.cache_clear()


def test_a_release_of_an_index_is_named(installed: Callable[[Any], None]) -> None:
    installed(None)
    wanted = requirement(install_command("onnx", "text"))
    assert (wanted.name, wanted.extras, wanted.url) == (DISTRIBUTION, {"onnx", "text"}, None)
    assert upgrade_command() == f"pip install -U {DISTRIBUTION}"


@pytest.mark.parametrize("name", ["edge.whl", "a folder's", "[odd]"])
@pytest.mark.parametrize("info", [{"archive_info": {}}, {"dir_info": {}}])
def test_a_local_archive_or_folder_is_named_by_its_path(
    installed: Callable[[Any], None], tmp_path: Path, name: str, info: dict[str, Any]
) -> None:
    (path := tmp_path / name).touch()
    installed({"url": path.as_uri()} | info)
    assert shlex.split(install_command("onnx")) == ["pip", "install", f"{path}[onnx]"]
    assert shlex.split(install_command()) == ["pip", "install", str(path)]


def test_a_lost_archive_leaves_its_requirements(installed: Callable[[Any], None]) -> None:
    installed({"url": "file:///gone/edge.whl", "archive_info": {}})
    words = shlex.split(install_command("onnx"))
    assert words == ["pip", "install", "pillow>=12", "onnxruntime>=1.20"]
    ray = shlex.split(install_command("ray"))[2:]
    assert ray == ["uvloop>=0.23", "ray[serve]>=2.60"]
    assert all(Requirement(word) for word in ray)


def test_a_remote_archive_is_named_by_its_url(installed: Callable[[Any], None]) -> None:
    installed({"url": "https://example.com/edge.whl", "archive_info": {"hash": "sha256=0"}})
    wanted = requirement(install_command("onnx"))
    assert (wanted.name, wanted.url) == (DISTRIBUTION, "https://example.com/edge.whl")


def test_a_repository_is_named_with_its_commit(installed: Callable[[Any], None]) -> None:
    vcs = {"vcs": "git", "requested_revision": "main", "commit_id": "7921be15"}
    installed({"url": "https://example.com/e.git", "vcs_info": vcs, "subdirectory": "py"})
    assert requirement(install_command("onnx")).url == (
        "git+https://example.com/e.git@7921be15#subdirectory=py"
    )
    assert upgrade_command().startswith("pip install -U ")
    assert "e.git@main#subdirectory=py" in upgrade_command()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 3}', '"x"'])
def test_an_unreadable_record_counts_as_none(
    installed: Callable[[Any], None], tmp_path: Path, text: str
) -> None:
    installed({})
    (tmp_path / "site" / f"{DISTRIBUTION}-1.0.dist-info" / "direct_url.json").write_text(text)
    assert install_command("onnx") == installation.published_command("onnx")


def test_a_copy_without_metadata_names_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    monkeypatch.setattr(installation, "_source_tree", lambda: None)
    installation._direct_url.cache_clear()
    assert install_command("cli") == installation.published_command("cli")
    installation._direct_url.cache_clear()


def test_codes_name_the_command_of_this_installation_and_pages_the_published() -> None:
    here, published = codes.catalogue(), codes.catalogue(published=True)
    assert f"`{install_command('report')}`" in here["EDGE-REPORT-003"].fix
    assert f"`pip install '{DISTRIBUTION}[report]'`" in published["EDGE-REPORT-003"].fix
    placeholders = ("{install", "{upgrade")
    assert not [e.code for e in published.values() if any(p in e.fix for p in placeholders)]
