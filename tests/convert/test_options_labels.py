"""Labels that a terminal would obey are refused; what else is odd about them is noted."""

from __future__ import annotations

import pytest

from edgeserve.convert.options import check_labels, read_options
from edgeserve.errors import ConvertError, escape_controls


@pytest.mark.parametrize(
    "label", ["a\nb", "a\tb", "\x1b[31mred", "\u202egnp.exe", "\x9b2J", "a\x7f"]
)
def test_a_control_character_is_refused(label: str) -> None:
    with pytest.raises(ConvertError) as caught:
        check_labels(["cat", label])
    assert caught.value.code == "EDGE-CONVERT-084"
    assert "label 1" in caught.value.message
    assert label not in str(caught.value)
    assert escape_controls(label).isprintable()


@pytest.mark.parametrize("label", ["chat blanc", "猫", "חתול", "👩\u200d🚀", "É", "\u200fقط"])
def test_labels_of_other_scripts_stay_as_they_are(label: str) -> None:
    assert check_labels([label]) == ()
    assert escape_controls(label) == label


def test_equal_and_empty_ones_are_noted() -> None:
    shared, empty = check_labels(["crane", "crane", "", "owl"])
    assert "'crane'" in shared
    assert empty == "1 of 4 labels are empty"


def test_a_word_that_a_step_does_not_take_is_told_with_those_it_takes() -> None:
    resize = {"step": "resize/1", "height": 8, "width": 8, "fit": "stretch"}
    steps = {"inputs": [{"name": "image", "steps": [{"step": "decode/1"}, resize]}]}
    with pytest.raises(ConvertError) as caught:
        read_options({"processing": steps})
    assert "'exact', 'shortest-edge', 'letterbox'" in caught.value.message
