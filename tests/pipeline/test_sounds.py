"""Models of sounds, the whole way: proven against a server of scipy's, packaged, asked."""

from __future__ import annotations

import asyncio
import io
import json
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile
from sklearn.metrics import f1_score
from testkit.modules import load

from edgeserve import Wrapper
from edgeserve.data import load_data, split
from edgeserve.errors import InputError
from edgeserve.processing import Sound
from edgeserve.serve import App, ServeOptions
from edgeserve.serve.server import RunningServer, serve
from edgeserve.serve.telemetry import Log
from edgeserve.wrapper.fallback import Fallback

pytestmark = pytest.mark.slow
Run = Callable[..., Any]
HEAR = Path(__file__).with_name("hear.py")
CLIPS = 40


def clip(number: int) -> bytes:
    """Bursts of one pitch over noise, as different devices would record them."""
    return recorded(number)[0]


def recorded(number: int) -> tuple[bytes, list[list[float]]]:
    """`clip`, and from when to when the pitch is there, in seconds."""
    rng = np.random.default_rng((11, number))
    rate = (8000, 16_000, 44_100, 48_000, 11_025)[number % 5]
    time = np.arange(int(rate * rng.uniform(0.3, 1.4))) / rate
    pitch = (350, 900, 2200)[number % 3] * 2 ** rng.uniform(-0.3, 0.3)
    loud = np.sin(2 * np.pi * rng.uniform(1, 3) * time + rng.uniform(0, 6)) > -0.2
    edges = np.flatnonzero(np.diff(loud, prepend=False, append=False)) / rate
    made = 0.5 * np.sin(2 * np.pi * pitch * time) * loud + rng.normal(0, 0.003, len(time))
    if number % 2:
        made = np.stack([made, 0.6 * made], axis=1)
    depth = (np.int16, np.int32, np.float32)[number % 4 % 3]
    full = np.iinfo(depth).max if depth is not np.float32 else 1
    out = io.BytesIO()
    wavfile.write(out, rate, (made * full).astype(depth))
    return out.getvalue(), edges.reshape(-1, 2).tolist()


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: hear.py and clips."""
    folder = tmp_path_factory.mktemp("studio")
    shutil.copy(HEAR, folder)
    (folder / "clips").mkdir()
    for i in range(CLIPS):
        (folder / "clips" / f"{i:02}.wav").write_bytes(clip(i))
    lines = [{"input": f"clips/{i:02}.wav", "group": i} for i in range(CLIPS)]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


@pytest.fixture(scope="module")
def hear() -> ModuleType:
    return load(HEAR, "hear_oracle")


def packaged(edgeserve: Run, studio: Path, factory: str, server: str, *words: str) -> Path:
    """The bundle of a model, each artifact of which has passed."""
    out, bundle = studio / factory, studio / f"{factory}.edge"
    done = edgeserve(
        "convert",
        f"hear:{factory}",
        "-o",
        str(out),
        "--to",
        "onnx,tflite",
        "--reference",
        f"hear:{server}",
        *words,
        "--json",
        cwd=studio,
    )
    assert done.code == 0, done.err + done.out
    assert {(a["format"], a["verdict"]) for a in done.json["artifacts"]} == {
        ("onnx", "pass"),
        ("tflite", "pass"),
    }
    report = json.loads((out / "reports" / "onnx-fp32.validate.json").read_bytes())
    assert report["preprocessing"].startswith("compared")
    done = edgeserve("package", str(out), "-o", str(bundle), "--name", factory, cwd=studio)
    assert done.code == 0, done.err
    return bundle


@pytest.fixture(scope="module")
def pitches(edgeserve: Run, studio: Path) -> Path:
    return packaged(edgeserve, studio, "build", "pitch", "--data", "clips")


@pytest.fixture(scope="module")
def voices(edgeserve: Run, studio: Path) -> Path:
    """Judged on what is generated, and on a table of clips."""
    return packaged(edgeserve, studio, "voice", "speech", "--data", "data.jsonl")


@pytest.fixture
def live_at() -> Iterator[Callable[[Path], str]]:
    """``live_at(bundle)``: the address of an endpoint that serves it."""
    ended: list[Callable[[], None]] = []

    def start(bundle: Path) -> str:
        found: queue.Queue[RunningServer] = queue.Queue()
        options = ServeOptions(bundles=(str(bundle),), threads=1, workers=1, drain_s=0.0, port=0)
        words = (options, Log(io.StringIO()), found.put)
        thread = threading.Thread(target=serve, args=words, daemon=True)
        thread.start()
        running = found.get(timeout=60)
        ended.extend([running.end, lambda: thread.join(30)])
        return f"http://127.0.0.1:{running.port}"

    yield start
    for each in ended:
        each()


def ask(bundle: Path, bodies: list[bytes]) -> Iterator[tuple[int, Any]]:
    """Status and JSON of ``POST predict`` for each body, from the endpoint itself."""

    async def all_of() -> list[tuple[int, Any]]:
        app = App(ServeOptions(bundles=(str(bundle),), threads=1, workers=1), Log(io.StringIO()))
        await app.start()
        found = []
        for body in bodies:
            waiting, sent = [{"type": "http.request", "body": body, "more_body": False}], []

            async def receive(waiting: list[Any] = waiting) -> Any:
                return waiting.pop() if waiting else {"type": "http.disconnect"}

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            path = f"/v2/models/{bundle.stem}/predict"
            head = [(b"content-length", str(len(body)).encode())]
            scope = {
                "type": "http",
                "method": "POST",
                "path": path,
                "raw_path": path.encode(),
                "headers": head,
            }
            await app(scope, receive, send)
            found.append((sent[0]["status"], json.loads(b"".join(b["body"] for b in sent[1:]))))
        await app.stop()
        return found

    yield from asyncio.run(all_of())


@pytest.mark.parametrize("format_", ["onnx", "tflite"])
def test_a_classifier_decides_as_the_server(pitches: Path, hear: ModuleType, format_: str) -> None:
    clips = [clip(i) for i in range(CLIPS)]
    with Wrapper(pitches, format=format_, threads=1) as model:
        assert model.medium == "audio"
        assert model.ran_on.proof == "golden"
        for raw, answer in zip(clips, model.predict(clips), strict=True):
            wanted = hear.pitch(raw)
            assert answer.label == wanted["label"]
            assert answer.score == pytest.approx(wanted["score"], abs=1e-4)
        assert len({model.predict(raw).label for raw in clips}) == 3


def test_the_endpoint_answers_a_wav_s_bytes_as_the_device(pitches: Path, hear: ModuleType) -> None:
    clips = [clip(i) for i in range(8)]
    with Wrapper(pitches, threads=1) as device:
        for raw, (status, said) in zip(clips, ask(pitches, clips), strict=True):
            assert status == 200, said
            assert said["answer"]["label"] == hear.pitch(raw)["label"]
            assert said["answer"]["score"] == pytest.approx(device.predict(raw).score, abs=1e-6)
            assert said["model_id"] == device.manifest.model_id
    bad = [clips[0][:-3], b"OggS" + bytes(99), b"", clips[0][:30]]
    codes = [(status, said["code"]) for status, said in ask(pitches, bad)]
    assert codes == [
        (400, "EDGE-INPUT-031"),
        (400, "EDGE-INPUT-030"),
        (400, "EDGE-INPUT-030"),
        (400, "EDGE-INPUT-031"),
    ]


def test_every_kind_of_input_is_the_same_sound(pitches: Path, studio: Path) -> None:
    raw = clip(0)  # one channel, 8000 Hz, 16 bits
    path = studio / "clips" / "00.wav"
    samples = wavfile.read(path)[1].astype(np.float32) / 32_768
    with Wrapper(pitches, threads=1) as model, path.open("rb") as file:
        answers = [model.predict(each) for each in (raw, path, str(path), file)]
        answers += [model.predict(samples, rate=8000), model.predict(Sound(samples, 8000))]
        answers += model.predict([samples, samples], rate=8000)
        assert {each.score for each in answers} == {answers[0].score}
        assert model.predict(samples, rate=16_000).score != answers[0].score
        for given, rate in ((samples, None), (raw, 8000), ([raw], 8000), ({"wave": samples}, 8000)):
            with pytest.raises(InputError, match="rate") as caught:
                model.predict(given, rate=rate)
            assert caught.value.code == "EDGE-INPUT-035"


def test_the_command_hears_a_file(pitches: Path, edgeserve: Run, studio: Path) -> None:
    done = edgeserve("predict", str(pitches), "clips/00.wav", "clips/04.wav", "--json", cwd=studio)
    assert done.code == 0, done.err
    labels = [each["answer"]["label"] for each in done.json["answers"]]
    assert labels == ["low", "middle"]
    done = edgeserve("measure", str(studio / "build"), "--seconds", "0.2", "--json", cwd=studio)
    assert done.code == 0, done.err


def test_a_server_that_forgets_to_resample_is_found_out(
    pitches: Path, edgeserve: Run, studio: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(studio / "build", tmp_path / "ws")
    words = ("--reference", "hear:deaf", "--data", "clips", "--json")
    done = edgeserve("validate", str(copy), *words, cwd=studio)
    assert done.code == 1, done.out
    assert {each["verdict"] for each in done.json["refused"]} == {"fail"}


def test_sounds_of_any_length_in_one_list(edgeserve: Run, studio: Path, hear: ModuleType) -> None:
    """Nothing is cut or filled up: each is answered as if it were alone."""
    words = ("--to", "onnx", "--reference", "hear:pitch_of_all", "--data", "clips")
    out = studio / "any"
    done = edgeserve("convert", "hear:any_length", "-o", str(out), *words, cwd=studio)
    assert done.code == 0, done.err
    clips = [clip(i) for i in range(12)]
    with Wrapper(out, threads=1) as model:
        for raw, answer in zip(clips, model.predict(clips), strict=True):
            wanted = hear.pitch_of_all(raw)
            assert answer.label == wanted["label"]
            assert answer.score == pytest.approx(wanted["score"], abs=1e-4)
        for count in (799, 16_001):
            with pytest.raises(InputError) as caught:
                model.predict(np.ones(count, np.float32), rate=8000)
            assert caught.value.code == "EDGE-INPUT-036"


@pytest.mark.parametrize("format_", ["onnx", "tflite"])
def test_voice_is_heard_when_the_server_hears_it(
    voices: Path, hear: ModuleType, format_: str
) -> None:
    clips = [clip(i) for i in range(CLIPS)]
    heard = []
    with Wrapper(voices, format=format_, threads=1) as model:
        for raw, answer in zip(clips, model.predict(clips), strict=True):
            wanted = hear.speech(raw)
            np.testing.assert_allclose(answer.prob, wanted["prob"], atol=2e-3)
            assert answer.step_s == wanted["step_s"]
            sure = np.abs(2 * wanted["prob"] - 1) >= 0.05
            np.testing.assert_array_equal(answer.prob[sure] >= 0.5, wanted["prob"][sure] >= 0.5)
            heard.append(answer.prob >= 0.5)
    assert 0.2 < np.mean(heard) < 0.8


def test_true_segments_say_who_is_right(
    voices: Path, hear: ModuleType, edgeserve: Run, studio: Path, tmp_path: Path
) -> None:
    """On the terminal, in the numbers and on the page: how much each hears of what was played."""
    shutil.copytree(voices.with_suffix(""), tmp_path / "voice")
    lines = [
        {"input": str(studio / f"clips/{i:02}.wav"), "segments": recorded(i)[1]}
        for i in range(CLIPS)
    ]
    (tmp_path / "true.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ("--data", str(tmp_path / "true.jsonl"), "--reference", "hear:speech")
    done = edgeserve("validate", str(tmp_path / "voice"), *words, cwd=studio)
    assert done.code == 0, done.err
    assert "onnx-fp32: F1: 0." in done.out
    data = (tmp_path / "voice/reports/onnx-fp32.validate.json").read_bytes()
    [stats] = json.loads(data)["metrics"]
    assert (stats["metric"], stats["inputs"]) == ("f1", CLIPS // 2)
    judged = {s.path for s in split(load_data(tmp_path / "true.jsonl"))["evaluation"]}
    played, heard = [], []
    for i in range(CLIPS):
        if str(studio / f"clips/{i:02}.wav") in judged:
            raw, segments = recorded(i)
            said = hear.speech(raw)
            middles = (np.arange(len(said["prob"])) + 0.5) * said["step_s"]
            played += [any(a <= t < b for a, b in segments) for t in middles]
            heard += (said["prob"] >= 0.5).tolist()
    assert stats["reference"] == pytest.approx(f1_score(played, heard))
    assert stats["artifact"] == pytest.approx(stats["reference"], abs=0.01)
    page = tmp_path / "report.html"
    done = edgeserve("report", str(tmp_path / "voice"), "-o", str(page), cwd=studio)
    assert done.code == 0, done.err
    assert "ground truth, F1" in page.read_text()


def test_what_leaves_the_device_is_a_wav(pitches: Path, live_at: Callable[[Path], str]) -> None:
    """Samples go to an endpoint as floats, and come back as the same decision."""
    samples = wavfile.read(io.BytesIO(clip(0)))[1].astype(np.float32) / 32_768
    address = live_at(pitches)
    contract = Fallback(address, when="always", send="raw", deadline_ms=2e4)
    with Wrapper(pitches, threads=1) as here, Wrapper(pitches, fallback=contract) as there:
        wanted, answer = here.predict(samples, rate=8000), there.predict(samples, rate=8000)
        assert answer.ran_on.where == "cloud"
        assert (answer.label, answer.score) == (wanted.label, pytest.approx(wanted.score))
        with pytest.raises(InputError, match="rate"):
            there.predict(samples)
