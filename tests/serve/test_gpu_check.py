"""`make gpu-check` where there is no GPU: a provider that falls back is an error, in every step."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from dev.benchmarks import gpu_check
from dev.benchmarks.gpu_check import Check, run_steps, unavailable


def check(delegate: str, bundle: str) -> Check:
    return Check(delegate, 0.1, {"fp32": bundle}, Path())


def test_an_answer_of_another_provider_is_an_error(
    live: Callable[..., Any], tagger: str, models: Any
) -> None:
    running = live(tagger).running
    photo = models.png(models.pixels(1))
    link = HTTPConnection("127.0.0.1", running.port, timeout=60)
    record = check("cpu", tagger).ask(link, "tagger", photo)
    assert record["record"] == "classification"
    with pytest.raises(AssertionError, match="ran on cpu"):
        check("cuda", tagger).ask(link, "tagger", photo)
    link.close()


def test_what_is_not_installed_is_said() -> None:
    assert unavailable("cpu") == ""
    assert "CPUExecutionProvider" in unavailable("no-such-provider")


def test_steps_that_passed_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "m.edge"
    bundle.write_bytes(b"12345")
    calls: list[str] = []

    def holds(_: Check) -> str:
        calls.append("holds")
        return "as wanted"

    def differs(_: Check) -> str:
        calls.append("differs")
        raise AssertionError("1 of 2 differ")

    monkeypatch.setattr(gpu_check, "OUT", tmp_path)
    monkeypatch.setattr(gpu_check, "STEPS", (holds, differs))
    assert not run_steps(check("cpu", str(bundle)), fresh=False)
    assert not run_steps(check("cpu", str(bundle)), fresh=False)
    assert calls == ["holds", "differs", "differs"]
    assert not run_steps(check("cuda", str(bundle)), fresh=False)  # another runtime, another proof
    assert calls[3:] == ["holds", "differs"]
    assert "FAIL  differs: 1 of 2 differ" in capsys.readouterr().out
    assert "differs" not in json.loads((tmp_path / "steps.json").read_text())
