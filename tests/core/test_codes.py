"""The catalogue of codes: read strictly, explained kindly."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeserve import codes
from edgeserve.codes import Explanation, catalogue, explain
from edgeserve.errors import FilesError, UsageError

ENTRY = '[{code}]\ntitle = "A title"\nstory = """A long\n  story."""\nfix = "Do it."\n'


def test_explain_takes_a_code_as_people_type_it() -> None:
    assert explain(" edge-files-001\n") is explain("EDGE-FILES-001")
    assert explain("EDGE-FILES-001").code == "EDGE-FILES-001"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("EDGE-FILES-0001", "EDGE-FILES-001"),
        ("EDGE-WORKR-002", "EDGE-WORKER-002"),
        ("FILES-003", "EDGE-FILES-003"),
        ("what?", "codes look like"),
        ("", "codes look like"),
    ],
)
def test_an_unknown_code_names_the_nearest(code: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        explain(code)
    assert error.value.code == "EDGE-USAGE-010"
    assert hint in error.value.hint


def test_the_catalogue_is_sorted_and_read_only() -> None:
    assert list(catalogue()) == sorted(catalogue())
    with pytest.raises(TypeError):
        catalogue()["EDGE-X-001"] = explain("EDGE-FILES-001")  # type: ignore[index]


def test_texts_are_read_as_one_line(tmp_path: Path) -> None:
    (tmp_path / "AREA.toml").write_text(ENTRY.format(code="EDGE-AREA-007"))
    (tmp_path / "note.txt").write_text("not a catalogue")
    assert codes._read(tmp_path) == {
        "EDGE-AREA-007": Explanation("EDGE-AREA-007", "A title", "A long story.", "Do it.")
    }


@pytest.mark.parametrize(
    "text",
    [
        ENTRY.format(code="EDGE-OTHER-001"),
        ENTRY.format(code="EDGE-AREA-1"),
        ENTRY.format(code="EDGE-AREA-0001"),
        ENTRY.format(code="AREA-001"),
        ENTRY.format(code="EDGE-AREA-001") * 2,
        ENTRY.format(code="EDGE-AREA-001") + 'more = "x"\n',
        ENTRY.format(code="EDGE-AREA-001").replace("fix", "fixes"),
        ENTRY.format(code="EDGE-AREA-001").replace("A title", " "),
        '[EDGE-AREA-001]\ntitle = "only"\n',
        'EDGE-AREA-001 = "text"\n',
        "not toml",
    ],
)
def test_a_damaged_catalogue_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "AREA.toml").write_text(text)
    with pytest.raises(FilesError) as error:
        codes._read(tmp_path)
    assert error.value.code == "EDGE-FILES-005"
    assert error.value.thing == "codes/AREA.toml"


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "AREA.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(FilesError, match="EDGE-FILES-005"):
        codes._read(tmp_path)
