"""Device and endpoint run the same bundle: whichever answers, the decision is the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve import Wrapper
from edgeserve.wrapper.fallback import Fallback


def contract(end: Any, **fields: Any) -> Fallback:
    return Fallback(f"http://{end.address}", **({"deadline_ms": 20_000} | fields))


@pytest.mark.parametrize("send", ["tensor", "raw"])
def test_two_thousand_inputs_decide_alike(
    live: Callable[..., Any], tagger: str, models: Any, send: Any
) -> None:
    end = live(tagger)
    count = 1000
    with (
        Wrapper(tagger) as device,
        Wrapper(tagger, fallback=contract(end, when="always", send=send)) as cloud,
    ):
        for i in range(count):
            photo = models.png(models.pixels(i))
            here, there = device.predict(photo), cloud.predict(photo)
            assert there.ran_on.where == "cloud", there.ran_on
            assert (here.label, here.index) == (there.label, there.index)
            assert here.score == pytest.approx(there.score, abs=1e-5)
            assert there.ran_on.model_id == here.ran_on.model_id


def test_what_answers_tells_of_itself(live: Callable[..., Any], tagger: str, models: Any) -> None:
    end = live(tagger)
    with Wrapper(tagger, fallback=contract(end, when="always", send="raw")) as cloud:
        ran_on = cloud.predict(models.pixels(3)).ran_on
        assert (ran_on.where, ran_on.why, ran_on.attempts) == ("cloud", "always", 1)
        assert (ran_on.format, ran_on.proof) == ("onnx", "golden")
        assert ran_on.endpoint == f"http://{end.address}"
        assert ran_on.sent_bytes > 0
        named = cloud.predict({"image": models.oracle_tensor(models.pixels(3))})
        expected = models.oracle_tensor(models.pixels(3)).reshape(1, -1) @ models.W
        np.testing.assert_allclose(named["logits"], expected, rtol=1e-4, atol=1e-4)
        assert named.ran_on.where == "cloud"
    assert "tagger" in end.log.getvalue()


def test_only_the_unsure_are_asked_about(
    live: Callable[..., Any], tagger: str, models: Any
) -> None:
    end = live(tagger)
    asked = contract(end, when="low-confidence", threshold=0.5)
    with Wrapper(tagger, fallback=asked) as tagged:
        for i in range(30):
            answer = tagged.predict(models.pixels(i))
            best, second = np.sort(models.oracle_scores(models.pixels(i)))[::-1][:2]
            if abs(best - second - 0.5) > 1e-3:
                assert (answer.ran_on.where == "cloud") == (best - second < 0.5)
            assert models.agrees(answer, models.pixels(i))


def test_without_an_artifact_the_endpoint_answers(
    live: Callable[..., Any], tagger: str, models: Any
) -> None:
    end = live(tagger)
    with Wrapper(tagger, delegate="cuda", fallback=contract(end, when="missing")) as tagged:
        answer = tagged.predict(models.pixels(3))
        assert models.agrees(answer, models.pixels(3))
        assert (answer.ran_on.where, answer.ran_on.why) == ("cloud", "missing")


def test_another_model_is_reported_or_refused(
    live: Callable[..., Any], tagger: str, maker: Any, models: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(maker.workspace(labels=("a", "b", "c", "d", "e"), golden=False), other)
    theirs = json.loads((other / "manifest.json").read_text())["model_id"]
    end = live(str(other))
    for send in ("tensor", "raw"):
        with Wrapper(tagger, fallback=contract(end, when="always", send=send)) as tagged:
            answer = tagged.predict(models.pixels(3))
            if send == "tensor":
                assert answer.ran_on.model_id == theirs
                assert "ANOTHER MODEL" in answer.ran_on.note
            else:  # its labels are none of this package's
                assert answer.ran_on.where == "device"
                assert "label of another model" in answer.ran_on.note
        strict = contract(end, when="always", send=send, other_model="refuse")
        with Wrapper(tagger, fallback=strict) as tagged:
            answer = tagged.predict(models.pixels(3))
            assert answer.ran_on.where == "device"
            assert "another model" in answer.ran_on.note


def test_keys_go_along(
    live: Callable[..., Any], tagger: str, models: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "keys").write_text("phone abcdefghijklmnop\n")
    end = live(tagger, keys=str(tmp_path / "keys"))
    with Wrapper(tagger, fallback=contract(end, when="always")) as tagged:
        answer = tagged.predict(models.pixels(3))
        assert answer.ran_on.where == "device"
        assert "401 (EDGE-SERVE-023)" in answer.ran_on.note
    monkeypatch.setenv("MY_KEY", "abcdefghijklmnop")
    with Wrapper(tagger, fallback=contract(end, when="always", key_env="MY_KEY")) as tagged:
        assert tagged.predict(models.pixels(3)).ran_on.where == "cloud"


def test_an_overloaded_endpoint_is_left_alone(
    live: Callable[..., Any], tagger: str, models: Any
) -> None:
    """It says how long, and the device answers meanwhile."""
    end = live(tagger)
    places = end.running.app.service.repository.places
    places["tagger"].hosted.admission.spans.mean = 30.0
    with Wrapper(tagger, fallback=contract(end, when="always")) as tagged:
        notes = [tagged.predict(models.pixels(3)).ran_on.note for _ in range(3)]
    assert "503 (EDGE-SERVE-020)" in notes[0]
    assert "circuit breaker open" in notes[1]
