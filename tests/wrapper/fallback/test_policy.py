"""What a contract may say, and who can say that nothing leaves."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeserve import Wrapper
from edgeserve.errors import EdgeError, FallbackError, WrapperError
from edgeserve.oip.client import EndpointRequest
from edgeserve.tasks.classification import Classification
from edgeserve.types.base import decode, encode
from edgeserve.types.records import RanOn
from edgeserve.wrapper.fallback import (
    Fallback,
    FallbackRanOn,
    parse_policy,
    pick_threshold,
    threshold_of,
)
from edgeserve.wrapper.fallback.egress import EgressPolicy

HTTPS = "https://gpu.example.com"
NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody listens


@pytest.mark.parametrize(
    "fields",
    [
        {"when": "sometimes"},
        {"when": ("missing", "local-only")},
        {"when": "low-confidence"},
        {"threshold": 0.5},
        {"when": ("busy",), "threshold": 0.1},
        {"deadline_ms": 0},
        {"deadline_ms": float("nan")},
        {"attempts": 3},
        {"attempts": 0},
        {"budget": 2.0},
        {"at_once": 0},
        {"send": "all"},
        {"answer_mb": 0},
        {"url": "gpu.example.com"},
        {"url": "ftp://x"},
        {"url": "https://"},
        {"url": "https://a:b@host"},
        {"url": "https://host/?q"},
        {"url": "https://host:99999"},
        {"url": "https://host/v2/models/tagger"},
        {"url": "https://host/v2"},
        {"url": "https://host/v1/models/x", "protocol": "tfserving"},
        {"url": ()},
        {"url": 7},
        {"threshold": "x"},
        {"threshold": -1},
        {"threshold": float("nan")},
        {"threshold": 7, "when": "low-confidence"},
        {"threshold": float("inf"), "when": "low-confidence"},
        {"deadline_ms": "a"},
        {"deadline_ms": True},
        {"at_once": "4"},
        {"when": 5},
        {"when": ("missing", 5)},
        {"binary": "yes"},
        {"hedge": 1},
        {"model": 5},
        {"model": "../x"},
        {"model": "x?y"},
        {"budget": float("nan")},
        {"protocol": ["oip"]},
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FallbackError) as error:
        Fallback(**({"url": HTTPS} | fields))
    assert error.value.code == "EDGE-FALLBACK-001"


def test_a_field_is_told_what_it_takes() -> None:
    for field, value, told in (
        ("hedge", 1, "True or False"),
        ("send", "all", "tensor or raw"),
        ("at_once", "4", "whole"),
    ):
        with pytest.raises(FallbackError, match=told):
            Fallback(HTTPS, **{field: value})  # type: ignore[arg-type]
    with pytest.raises(FallbackError) as error:
        Fallback(f"{HTTPS}/v2/models/tagger")
    assert f"write {HTTPS}," in error.value.hint
    with pytest.raises(FallbackError, match="empty") as error:
        parse_policy("")
    assert error.value.code == "EDGE-FALLBACK-001"


def test_a_list_and_a_whole_number_are_as_in_toml() -> None:
    contract = Fallback([HTTPS], when=["missing"], deadline_ms=250, model="tagger/versions/2")  # type: ignore[arg-type]
    assert contract == Fallback((HTTPS,), ("missing",), 250.0, model="tagger/versions/2")
    assert Fallback(f"{HTTPS}/prefix").urls == (f"{HTTPS}/prefix",)


@pytest.mark.parametrize(
    "url", ["http://gpu.example.com", "http://10.0.0.7:8080", "http://127.0.0.1.evil.com"]
)
def test_plain_http_to_another_machine_has_to_be_said(url: str) -> None:
    with pytest.raises(FallbackError) as error:
        Fallback(url)
    assert error.value.code == "EDGE-FALLBACK-003"
    assert Fallback(url, plain_http=True).urls == (url,)


def test_plain_http_to_this_machine_is_fine() -> None:
    assert Fallback("http://[::1]:8080/x/").urls == ("http://[::1]:8080/x",)


def test_a_contract_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "cloud.toml"
    file.write_text(
        'url = ["https://a.example", "https://b.example"]\nwhen = ["missing", "low-confidence"]\n'
        'threshold = 0.4\nsend = "raw"\ndeadline_ms = 250\n'
    )
    contract = parse_policy(str(file))
    assert contract.urls == ("https://a.example", "https://b.example")
    assert contract.declaration()["what"].startswith("the raw input itself")
    file.write_text('url = "https://a.example"\nwehn = "always"\n')
    with pytest.raises(FallbackError, match="wehn") as error:
        parse_policy(file)
    assert error.value.code == "EDGE-FALLBACK-002"
    with pytest.raises(FallbackError):
        parse_policy(tmp_path / "no.toml")
    with pytest.raises(FallbackError):
        parse_policy(7)


def test_the_device_answers_while_it_can(make: Any) -> None:
    with Wrapper(make.workspace(), fallback=NOWHERE) as tagger:
        answer = tagger.predict(make.pixels(3))
        assert make.agrees(answer, make.pixels(3))
        assert isinstance(answer.ran_on, FallbackRanOn)
        assert (answer.ran_on.where, answer.ran_on.why, answer.ran_on.attempts) == ("device", "", 0)
        assert answer.ran_on.took_ms > 0
        both = tagger.predict([make.pixels(3), make.pixels(4)])
        assert make.agrees(both[1], make.pixels(4))


def test_cloud_first_with_the_device_behind_it(make: Any) -> None:
    with Wrapper(make.workspace(), fallback=Fallback(NOWHERE, when="always")) as tagger:
        answer = tagger.predict(make.pixels(3))
        assert make.agrees(answer, make.pixels(3))
        assert answer.ran_on.where == "device"
        assert "no connection" in answer.ran_on.note


def test_what_cannot_be_read_asks_nobody(make: Any) -> None:
    with (
        Wrapper(make.workspace(), fallback=Fallback(NOWHERE, when="always")) as tagger,
        pytest.raises(EdgeError) as error,
    ):
        tagger.predict(b"no photo")
    assert error.value.code.startswith("EDGE-INPUT-")


def test_a_missing_artifact_needs_its_trigger(make: Any) -> None:
    root = make.workspace()
    with pytest.raises(WrapperError) as error:
        Wrapper(root, delegate="cuda", fallback=Fallback(NOWHERE, when="busy"))
    assert error.value.code == "EDGE-WRAPPER-001"
    with Wrapper(root, delegate="cuda", fallback=Fallback(NOWHERE, when="missing")) as tagger:
        assert tagger.ran_on.where == "cloud"
        with pytest.raises(FallbackError) as lost:
            tagger.predict(make.pixels(3))
        assert lost.value.code == "EDGE-FALLBACK-007"
        assert "no connection" in str(lost.value)
    with pytest.raises(WrapperError):
        tagger.predict(make.pixels(3))


class Engine:
    """An engine that fails in a way of its own."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def one(self, _: object) -> object:
        raise self._error


@pytest.mark.parametrize(
    ("told", "why"), [("device lost", "device-error"), ("bad_alloc: 7 GB", "out-of-memory")]
)
def test_an_error_of_the_device_is_a_trigger_or_stays_an_error(
    make: Any, told: str, why: str
) -> None:
    from edgeserve.errors import BackendError

    error = BackendError("EDGE-BACKEND-013", "engine", got=told, hint="none")
    for contract, expected in (
        (Fallback(NOWHERE, when=why), FallbackError),
        (Fallback(NOWHERE, when="busy"), BackendError),
    ):
        with Wrapper(make.workspace(), fallback=contract) as tagger:
            tagger._engine = Engine(error)  # type: ignore[assignment]
            with pytest.raises(expected) as caught:
                tagger.predict(make.pixels(3))
            if expected is FallbackError:
                assert why in str(caught.value)
                assert caught.value.__cause__ is error


@pytest.mark.parametrize("how", ["contract", "other word", "environment", "bundle"])
def test_nothing_leaves_where_anybody_says_so(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Whatever the app's contract says besides, and whatever goes wrong on the device."""
    words = {"contract": "local-only", "other word": "never-cloud"}.get(how, "always")
    if how == "environment":
        monkeypatch.setenv("EDGESERVE_LOCAL_ONLY", "1")
    root = make.workspace(x={"local_only": True} if how == "bundle" else {})
    caplog.set_level("INFO", "edgeserve.fallback")
    with Wrapper(root, fallback=Fallback(NOWHERE, when=words)) as tagger:
        assert tagger.predict(make.pixels(3)).ran_on.note == ""
        assert tagger._router is not None
        with pytest.raises(FallbackError) as error:  # the gate holds even if the decision did not
            tagger._router._cloud(make.pixels(3), "always", 0.0, 1e9)
        assert error.value.code == "EDGE-FALLBACK-004"
    with pytest.raises(WrapperError):
        Wrapper(root, delegate="cuda", fallback=Fallback(NOWHERE, when=words))
    assert caplog.messages == []


def test_what_leaves_is_told_before_it_leaves(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    caplog.set_level("INFO", "edgeserve.fallback")
    egress = EgressPolicy(("https://a.example/secret/prefix",), on_leave=told.append)
    egress.check(EndpointRequest("/p", {"x-request-id": "77"}, b"12345"), "raw input", "busy")
    assert (told[0].bytes, told[0].why, told[0].to) == (5, "busy", ("https://a.example",))
    assert "5 bytes (raw input)" in caplog.messages[0]
    assert "secret" not in caplog.messages[0]


def test_a_key_is_needed_where_one_is_named(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    for value in (None, "", "k\n"):
        if value is not None:
            monkeypatch.setenv("MY_KEY", value)
        with pytest.raises(FallbackError) as error:
            Wrapper(make.workspace(), fallback=Fallback(NOWHERE, key_env="MY_KEY"))
        assert error.value.code == "EDGE-FALLBACK-006"


def test_a_deadline_belongs_to_a_contract(make: Any) -> None:
    with Wrapper(make.workspace(), fallback=HTTPS, deadline=0.5) as tagger:
        assert tagger._router is not None
        assert tagger._router.contract.deadline_ms == 500


def test_the_threshold_is_the_smallest_that_is_good_enough() -> None:
    rng = np.random.default_rng(3)
    margins = rng.uniform(size=400)
    right = rng.uniform(size=400) < 0.5 + margins / 2
    threshold = pick_threshold(margins.tolist(), right.tolist(), 0.1)

    def share(at: float) -> float:
        kept = margins >= at
        return float((~right[kept]).mean())

    assert share(threshold) <= 0.1
    assert all(share(m) > 0.1 for m in margins[margins < threshold] if m < threshold)


def test_thresholds_at_the_ends() -> None:
    assert pick_threshold([0.1, 0.9], [True, True], 0.0) == 0.0
    assert pick_threshold([0.1, 0.9], [False, False], 0.0) > 0.9
    assert pick_threshold([0.5, 0.5, 0.9], [True, False, True], 0.1) == 0.9


@pytest.mark.parametrize(
    ("margins", "right", "share"),
    [
        ([], [], 0.1),
        ([0.1], [], 0.1),
        ([float("nan")], [True], 0.1),
        ([0.1], [True], 5),
        ([0.1], [True], -0.1),
        ([0.1], [True], float("nan")),
        (["x"], [True], 0.1),
        ([0.1], [True], "x"),
    ],
)
def test_no_threshold_out_of_nonsense(margins: Any, right: Any, share: Any) -> None:
    with pytest.raises(FallbackError) as error:
        pick_threshold(margins, right, share)
    assert error.value.code == "EDGE-FALLBACK-008"
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        with pytest.raises(FallbackError):
            threshold_of(None, [], share)  # type: ignore[arg-type]


def test_the_documented_file_has_each_field_and_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "guide" / "fallback.md").read_text("utf-8")
    block = text.partition("## In TOML\n\n")[2].partition("\n\n")[0]
    (tmp_path / "cloud.toml").write_text(textwrap.dedent(block))
    said = tomllib.loads(textwrap.dedent(block))
    assert said.keys() == set(Fallback.__struct_fields__)
    contract = parse_policy(tmp_path / "cloud.toml")
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in said.items()}
    assert contract == Fallback(**fields)


def test_a_result_is_stored_and_read_back(make: Any) -> None:
    with Wrapper(make.workspace(), fallback=Fallback(NOWHERE, when="always")) as tagger:
        answer = tagger.predict(make.pixels(3))
    assert answer.ran_on.attempts > 0
    assert encode(decode(encode(answer), Classification)) == encode(answer)
    assert decode(encode(answer.ran_on), RanOn) == answer.ran_on


def test_a_threshold_from_inputs_whose_decisions_are_known(make: Any) -> None:
    """The server is right by construction; here it is made to disagree below a margin of 0.4."""
    pairs, wrong = [], []
    for seed in range(40):
        record = make.oracle(make.pixels(seed))
        best, second = np.sort(make.oracle_scores(make.pixels(seed)))[::-1][:2]
        if best - second < 0.4:
            (label, score), (other, rest), third = record.top
            record = Classification(
                label=other, score=score, top=((other, score), (label, rest), third)
            )
            wrong.append(best - second)
        pairs.append((make.pixels(seed), record))
    assert 5 < len(wrong) < 35
    with Wrapper(make.workspace()) as tagger:
        threshold = threshold_of(tagger, pairs, 0.0)
        assert max(wrong) < threshold
        kept = [
            p for p, _ in pairs if np.diff(np.sort(make.oracle_scores(p)))[-1] >= threshold - 1e-6
        ]
        assert len(kept) == len(pairs) - len(wrong), "none is asked about that was right"
        with pytest.raises(FallbackError, match="0 margins"):
            threshold_of(tagger, [], 0.0)
