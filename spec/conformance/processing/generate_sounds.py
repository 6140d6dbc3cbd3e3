"""Writes the cases of sounds, or checks that what is committed is what would be written.

    python spec/conformance/processing/generate_sounds.py --write | --check

Samples are known from what was written into the files; other rates are those of
`scipy.signal.resample_poly`, mel spectra those of `transformers.audio_utils`. Nothing of edgeserve
is imported. Numbers out of a Fourier transform may differ in their last bits from one build of
numpy to the next, so what has a tolerance is checked with it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import resample_poly

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from soundfiles import SoundFile, files  # noqa: E402

Step = dict[str, Any]
#: Differences allowed: none where samples are only decoded, else what the order of sums changes.
EXACT, RESAMPLED, SPECTRAL = 0.0, 1e-6, 1e-5


def waveform(rate: int, length: int | None = None, **more: Any) -> Step:
    """waveform/1 with every field written out."""
    step = {"step": "waveform/1", "rate": rate, "length": length, "max_length": 28_800_000}
    return {**step, "normalize": "none", **more}


def log_mel(**more: Any) -> Step:
    """log_mel/1 with every field written out."""
    step: Step = {
        "step": "log_mel/1",
        "mels": 80,
        "n_fft": 400,
        "frame_length": None,
        "hop": 160,
        "window": "hann",
        "center": True,
        "remove_dc": False,
        "preemphasis": 0.0,
        "power": 2,
        "scale": "slaney",
        "norm": "slaney",
        "low": 0.0,
        "high": None,
        "log": "log10",
        "floor": 1e-10,
        "frames": None,
        "below_max": None,
        "mean": 0.0,
        "std": 1.0,
        "layout": "mels-frames",
    }
    return {**step, **more}


WHISPER = log_mel(mels=24, frames=25, below_max=8.0, mean=-4.0, std=4.0)
AST = log_mel(
    mels=20,
    n_fft=512,
    frame_length=400,
    window="hann-symmetric",
    center=False,
    remove_dc=True,
    preemphasis=0.97,
    scale="kaldi",
    norm="none",
    low=20.0,
    log="ln",
    floor=1.192092955078125e-07,
    frames=30,
    mean=-4.2677393,
    std=9.1379948,
    layout="frames-mels",
)
HTK = log_mel(mels=16, n_fft=256, hop=100, scale="htk", norm="none", power=1, low=50.0, high=3500.0)


def cases(known: dict[str, SoundFile]) -> Iterator[tuple[str, str, list[Step], str | None]]:
    """Id, file, steps, and the error where one is wanted."""
    for name, file in known.items():
        if file.samples is not None:
            yield f"samples of {name}", name, [waveform(file.rate)], None
    unit = {"normalize": "zero-mean-unit-variance"}
    for rate in (8000, 16_000, 11_025, 44_100):
        for name in ("8k.wav", "11k.wav", "44k-stereo.wav", "48k.wav", "one-sample.wav"):
            yield f"{name} at {rate}", name, [waveform(rate)], None
    for length in (1, 799, 800, 801, 2000):
        for more, word in (({}, ""), (unit, " normalized")):
            yield f"{length} of 8k.wav{word}", "8k.wav", [waveform(8000, length, **more)], None
        yield f"{length} of 48k.wav", "48k.wav", [waveform(16_000, length)], None
    yield "silence normalized", "silence.wav", [waveform(8000, **unit)], None
    yield "normalized at another rate", "48k.wav", [waveform(16_000, **unit)], None
    yield from _spectra()
    yield from _refused(known)


def _spectra() -> Iterator[tuple[str, str, list[Step], str | None]]:
    whole = waveform(16_000, 4000)
    for word, mel in (("whisper", WHISPER), ("ast", AST), ("htk", HTK)):
        yield f"{word} of 16k.wav", "16k.wav", [whole, mel], None
        yield f"{word} of 48k.wav", "48k.wav", [whole, mel], None
        yield f"{word} of silence", "silence.wav", [whole, mel], None
        free = [waveform(16_000), {**mel, "frames": None}]
        yield f"{word} of any length", "16k.wav", free, None
    few = [waveform(16_000), {**AST, "frames": 10, "layout": "mels-frames"}]
    yield "ast cut", "16k.wav", few, None


def _refused(known: dict[str, SoundFile]) -> Iterator[tuple[str, str, list[Step], str | None]]:
    kinds = ("alaw", "mulaw", "adpcm", "pcm12", "pcm20", "pcm64", "float16", "other-maker")
    for name, file in known.items():
        if file.samples is not None:
            continue
        stem, _, kind = name.partition(".")
        code = "031"
        if kind != "wav" or stem == "empty":
            code = "030"
        elif stem in kinds:
            code = "032"
        elif stem.startswith("rate-"):
            code = "033"
        elif stem in ("nan", "inf"):
            code = "037"
        yield f"refused {name}", name, [waveform(16_000)], f"EDGE-INPUT-{code}"
    yield "too long", "16k.wav", [waveform(16_000, max_length=3999)], "EDGE-INPUT-036"
    yield "just not too long", "16k.wav", [waveform(16_000, max_length=4000)], None
    yield "no frame in it", "one-sample.wav", [waveform(8000), HTK], "EDGE-INPUT-036"
    yield "bands too high", "16k.wav", [waveform(6000), HTK], "EDGE-PROCESS-004"
    yield "mel first", "16k.wav", [HTK, waveform(8000)], "EDGE-PROCESS-001"
    yield "waveform twice", "16k.wav", [waveform(8000)] * 2, "EDGE-PROCESS-001"


def carried_out(file: SoundFile, steps: list[Step]) -> tuple[np.ndarray, float]:
    """The expected tensor, and how far an answer may be from it."""
    wave, *rest = steps
    assert file.samples is not None
    x, tolerance = _mono(file.samples), EXACT
    if file.rate != wave["rate"]:
        common = gcd(file.rate, wave["rate"])
        up, down = wave["rate"] // common, file.rate // common
        x = resample_poly(x.astype(np.float64), up, down).astype(np.float32)
        tolerance = RESAMPLED
    x = x[: wave["length"]]
    if wave["normalize"] != "none":
        wide = x.astype(np.float64)
        x = ((wide - wide.mean()) / np.sqrt(wide.var() + 1e-7)).astype(np.float32)
        tolerance = SPECTRAL
    x = np.pad(x, (0, max(0, (wave["length"] or 0) - len(x))))
    return (_mel(x, wave["rate"], rest[0]), SPECTRAL) if rest else (x, tolerance)


def _mono(samples: np.ndarray) -> np.ndarray:
    total = np.zeros(len(samples))
    for channel in samples.T:
        total = total + channel
    return (total / samples.shape[1]).astype(np.float32)


def _mel(x: np.ndarray, rate: int, step: Step) -> np.ndarray:
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    frame = step["frame_length"] or step["n_fft"]
    bank = mel_filter_bank(
        step["n_fft"] // 2 + 1,
        step["mels"],
        step["low"],
        step["high"] or rate / 2,
        rate,
        norm=None if step["norm"] == "none" else step["norm"],
        mel_scale=step["scale"],
        triangularize_in_mel_space=step["scale"] == "kaldi",
    )
    logs = spectrogram(
        x,
        window_function(frame, "hann", periodic=step["window"] == "hann"),
        frame,
        step["hop"],
        fft_length=step["n_fft"],
        power=float(step["power"]),
        center=step["center"],
        preemphasis=step["preemphasis"] or None,
        mel_filters=bank,
        mel_floor=step["floor"],
        log_mel="log" if step["log"] == "ln" else "log10",
        remove_dc_offset=step["remove_dc"],
        dtype=np.float64,
    ).T
    logs = logs[: step["frames"]]
    logs = np.pad(logs, ((0, max(0, (step["frames"] or 0) - len(logs))), (0, 0)))
    if step["below_max"] is not None:
        logs = np.maximum(logs, logs.max() - step["below_max"])
    made = ((logs - step["mean"]) / step["std"]).astype(np.float32)
    return made if step["layout"] == "frames-mels" else made.T


def generated() -> tuple[dict[str, bytes], list[dict[str, Any]], bytes]:
    """The sound files by name, the cases, and their values."""
    known = {file.name: file for file in files()}
    blob, listed = bytearray(), []
    for case_id, name, steps, error in cases(known):
        case: dict[str, Any] = {"id": case_id, "input": f"sounds/{name}", "steps": steps}
        if error:
            case["error"] = error
        else:
            tensor, case["tolerance"] = carried_out(known[name], steps)
            case["expected"] = _stored(np.ascontiguousarray(tensor), blob)
        listed.append(case)
    unused = set(known) - {case["input"].partition("/")[2] for case in listed}
    assert not unused, f"sounds without a case: {unused}"
    return {name: file.data for name, file in known.items()}, listed, bytes(blob)


def _stored(tensor: np.ndarray, blob: bytearray) -> dict[str, Any]:
    assert tensor.dtype == np.float32
    data = tensor.astype("<f4").tobytes()
    offset = blob.find(data)
    if offset < 0 or offset % 4:
        offset = len(blob)
        blob += data
    shape, digest = list(tensor.shape), hashlib.sha256(data).hexdigest()
    return {
        "dtype": "float32",
        "shape": shape,
        "offset": offset,
        "bytes": len(data),
        "sha256": digest,
    }


def _json(listed: list[dict[str, Any]]) -> bytes:
    lines = ",\n".join(json.dumps(case) for case in listed)
    return f'{{\n"version": 1,\n"blob": "sounds.bin",\n"cases": [\n{lines}\n]\n}}\n'.encode()


def check(sounds: dict[str, bytes], listed: list[dict[str, Any]], blob: bytes) -> list[str]:
    """What is not as it would be written."""
    there = {path.name: path.read_bytes() for path in (HERE / "sounds").glob("*")}
    wrong = [name for name in {*there, *sounds} if there.get(name) != sounds.get(name)]
    held = json.loads((HERE / "sounds.json").read_bytes())["cases"]
    committed = (HERE / "sounds.bin").read_bytes()
    if len(held) != len(listed):
        return [*wrong, f"{len(held)} cases instead of {len(listed)}"]
    for one, other in zip(held, listed, strict=True):
        values = [_values(one, committed), _values(other, blob)]
        same = one | {"expected": 0} == other | {"expected": 0}
        if not same or values[0].shape != values[1].shape:
            wrong.append(one["id"])
        elif not np.allclose(*values, rtol=0, atol=one.get("tolerance", 0.0)):
            wrong.append(f"{one['id']}: values")
    return wrong


def _values(case: dict[str, Any], blob: bytes) -> np.ndarray:
    if "expected" not in case:
        return np.zeros(0)
    where = case["expected"]
    found = np.frombuffer(blob, "<f4", where["bytes"] // 4, where["offset"])
    return found.reshape(where["shape"])


def main() -> int:
    """Write or check; the exit code says whether what is committed is right."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    write = parser.parse_args().write
    sounds, listed, blob = generated()
    if not write:
        wrong = check(sounds, listed, blob)
        print(f"{len(listed)} cases;", *(wrong or ["all are as generated"]), sep="\n")
        return 1 if wrong else 0
    (HERE / "sounds").mkdir(exist_ok=True)
    for name, data in sounds.items():
        (HERE / "sounds" / name).write_bytes(data)
    (HERE / "sounds.json").write_bytes(_json(listed))
    (HERE / "sounds.bin").write_bytes(blob)
    print(f"{len(listed)} cases, {len(blob) + sum(map(len, sounds.values()))} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
