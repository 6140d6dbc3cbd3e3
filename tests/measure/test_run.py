"""Measuring a real model with the real runtime: every figure is there and hangs together."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tokenizers
from msgspec.structs import replace
from onnx import TensorProto, helper
from PIL import Image

from edgeserve import jobs
from edgeserve.environment import environment
from edgeserve.errors import BackendError, InputError, MeasureError
from edgeserve.files import describe
from edgeserve.jobs import Progress
from edgeserve.measure import MeasureRequest
from edgeserve.measure.request import VERB
from edgeserve.measure.run import measure_artifact
from edgeserve.measure.stats import spread
from edgeserve.measure.timing import Stopwatch, time_steps
from edgeserve.processing import Processor, normalize_from
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.pool import Pool
from edgeserve.processing.steps.resize import Resize
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.processing.steps.top_k import TopK
from edgeserve.types.artifact import Artifact
from edgeserve.types.base import decode, encode, plain
from edgeserve.types.options import MeasureSettings
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.reports import Measurement
from edgeserve.types.tensors import IO, Signature, TensorSpec

NORMALIZE = normalize_from(1 / 255, (0.5,) * 3, (0.5,) * 3)
PROCESSING = Processing(
    inputs=(
        InputProcessing(
            "image",
            (
                Decode(),
                Resize(8, 8),
                normalize_from(1 / 255, (0.5,) * 3, (0.5,) * 3),
                Layout("CHW"),
            ),
        ),
    ),
    outputs=(Softmax("logits"), TopK("logits", 3)),
)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    return tmp_path / "cat.png"


@pytest.fixture
def with_photo(request_: MeasureRequest, photo: Path) -> MeasureRequest:
    return replace(
        request_,
        processing=PROCESSING,
        task="image-classification",
        labels=tuple("abcde"),
        sample=str(photo),
    )


def text_request(root: Path) -> MeasureRequest:
    """A mean of word vectors, one text of eight tokens at a time, its tokenizer an asset."""
    words = tokenizers.models.WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    (root / "assets").mkdir()
    (root / "assets" / "tokenizer.json").write_text(made.to_str())
    step = Tokenize(tokenizer=describe(root, "assets/tokenizer.json"), part="ids", max_length=8)
    mask = replace(step, part="attention_mask")
    table = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["found"]),
            helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["kept", "last"], ["wide"]),
            helper.make_node("Mul", ["found", "wide"], ["tokens"]),
        ],
        "text",
        [helper.make_tensor_value_info(n, TensorProto.INT32, [1, 8]) for n in ("ids", "mask")],
        [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [1, 8, 4])],
        [
            onnx.numpy_helper.from_array(table, "table"),
            onnx.numpy_helper.from_array(np.array([2]), "last"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 10
    onnx.save(model, root / "model.onnx")
    outer = [TensorSpec(n, "int64", ("batch", "length")) for n in ("ids", "mask")]
    inner = [TensorSpec(n, "int32", (1, 8)) for n in ("ids", "mask")]
    artifact = Artifact(
        format="onnx",
        precision="fp32",
        entry="model.onnx",
        files=(describe(root, "model.onnx"),),
        io=IO(inputs=tuple(inner), outputs=(TensorSpec("tokens", "float32", (1, 8, 4)),)),
    )
    return MeasureRequest(
        artifact=artifact,
        root=str(root),
        signature=Signature(
            inputs=tuple(outer),
            outputs=(TensorSpec("tokens", "float32", ("batch", "length", 4)),),
            dims={"batch": (1, 4), "length": (1, 8)},
        ),
        processing=Processing(
            inputs=(InputProcessing("ids", (step,)), InputProcessing("mask", (mask,))),
            outputs=(Pool(output="tokens", mask="mask"),),
        ),
        task="feature-extraction",
        settings=MeasureSettings(seconds=0.2),
        min_runs=5,
        max_runs=20,
    )


def with_settings(request: MeasureRequest, **fields: Any) -> MeasureRequest:
    """The request with other fields, be they of its settings or its own."""
    own = {n: v for n, v in fields.items() if n in MeasureRequest.__struct_fields__}
    given = {n: v for n, v in fields.items() if n not in own}
    return replace(request, settings=dataclasses.replace(request.settings, **given), **own)


def test_every_figure_is_there_and_hangs_together(request_: MeasureRequest) -> None:
    m = measure_artifact(request_)
    assert (m.format, m.precision, m.target) == ("onnx", "fp32", "host")
    assert m.artifact_sha256 == request_.artifact.sha256
    assert (m.runtime.name, m.runtime.version) == ("onnxruntime", onnxruntime.__version__)
    assert m.runtime.delegate == "cpu"
    assert (m.threads, m.batch, m.dims, m.input) == (1, 1, {"batch": 1}, "seeded tensors")
    assert m.size_bytes == request_.artifact.size
    assert 12 <= m.run.wall.n <= 60
    assert len(m.wall_ms) == len(m.cpu_ms) == m.run.wall.n == m.run.cpu.n
    assert m.run.wall == spread(m.wall_ms)
    assert m.run.cpu == spread(m.cpu_ms)
    assert plain(m.load_ms) > 0.0 < plain(m.first_ms)
    assert plain(m.rss_mb) >= plain(m.rss_before_mb) > 10.0
    assert m.split == {}
    assert m.environment == environment()
    assert decode(encode(m), Measurement) == m


def test_batch_and_threads_are_what_ran(request_: MeasureRequest) -> None:
    m = measure_artifact(with_settings(request_, batch=8, threads=2))
    assert (m.batch, m.threads, m.dims) == (8, 2, {"batch": 8})


def test_the_number_of_runs_keeps_to_its_limits(request_: MeasureRequest) -> None:
    m = measure_artifact(
        with_settings(replace(request_, min_runs=1, max_runs=5, max_warmup=0), seconds=60.0)
    )
    assert m.run.wall.n == 5
    assert m.warmup == 0
    assert "only 5 runs" in (m.noisy or "")


def test_a_raw_sample_is_split_over_the_steps(with_photo: MeasureRequest) -> None:
    m = measure_artifact(with_photo)
    assert m.input == "cat.png"
    assert {"decode", "resize", "batch", "run", "finish", "total"} <= set(m.split)
    assert len({t.wall.n for t in m.split.values()}) == 1
    parts = sum(plain(t.wall.min) for name, t in m.split.items() if name != "total")
    assert parts <= plain(m.split["total"].wall.min)
    assert all(plain(t.cpu.p50) >= 0.0 for t in m.split.values())


def test_named_tensors_are_fed_as_they_are(request_: MeasureRequest, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros((1, 3, 8, 8), np.float32))
    m = measure_artifact(with_settings(replace(request_, sample=str(tmp_path / "x.npz")), batch=2))
    assert (m.input, m.dims, m.split) == ("x.npz", {"batch": 2}, {})


def test_it_runs_in_a_process_of_its_own_and_tells_how_far_it_is(
    request_: MeasureRequest, tmp_path: Path
) -> None:
    seen: list[Progress] = []
    m = jobs.run(VERB, request_, Measurement, tmp_path / "job", on_progress=seen.append)
    assert m.run.wall.n >= 12
    assert [p.what for p in seen][:2] == ["loading onnx-fp32", "warming up"]
    assert (tmp_path / "job" / "result.json").exists()


def test_errors_keep_their_meaning_across_the_process(
    request_: MeasureRequest, tmp_path: Path
) -> None:
    with pytest.raises(MeasureError, match="not in this version") as caught:
        jobs.run(VERB, with_settings(request_, on="adb:1234"), Measurement, tmp_path / "job")
    assert caught.value.code == "EDGE-MEASURE-001"


@pytest.mark.parametrize("target", ["browser", "arm64", "adb:SERIAL", "ssh:HOST", "", "Host"])
def test_only_the_host_is_measured(target: str, request_: MeasureRequest) -> None:
    with pytest.raises(MeasureError) as caught:
        measure_artifact(with_settings(request_, on=target))
    assert caught.value.code == "EDGE-MEASURE-001"


@pytest.mark.parametrize(
    ("fields", "thing"),
    [
        ({"threads": 0}, "threads"),
        ({"batch": 0}, "batch"),
        ({"min_runs": 0}, "min_runs"),
        ({"min_runs": 9, "max_runs": 8}, "max_runs"),
        ({"max_warmup": -1}, "max_warmup"),
        ({"seconds": 0.0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": float("inf")}, "seconds"),
    ],
)
def test_figures_that_make_no_sense(
    fields: dict[str, Any], thing: str, request_: MeasureRequest
) -> None:
    with pytest.raises(MeasureError, match=f"^EDGE-MEASURE-006 {thing}: "):
        measure_artifact(with_settings(request_, **fields))


def test_changed_bytes_are_not_measured(request_: MeasureRequest) -> None:
    path = Path(request_.root) / "model.onnx"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(BackendError, match=r"model\.onnx"):
        measure_artifact(request_)


def test_an_unusable_delegate_is_not_replaced(request_: MeasureRequest) -> None:
    with pytest.raises(BackendError, match="tensorrt"):
        measure_artifact(replace(request_, delegate="tensorrt"))


def test_a_raw_sample_needs_processing(request_: MeasureRequest, photo: Path) -> None:
    with pytest.raises(MeasureError, match="no processing") as caught:
        measure_artifact(replace(request_, sample=str(photo)))
    assert caught.value.code == "EDGE-MEASURE-005"


def test_a_sample_that_is_missing_or_no_photo(with_photo: MeasureRequest, photo: Path) -> None:
    with pytest.raises(MeasureError, match=r"none\.png") as caught:
        measure_artifact(replace(with_photo, sample=str(photo.with_name("none.png"))))
    assert caught.value.code == "EDGE-MEASURE-005"
    photo.write_bytes(b"no photo")
    with pytest.raises(InputError):
        measure_artifact(with_photo)


def test_the_sum_of_the_steps_is_the_whole() -> None:
    watch = Stopwatch()
    watch.begin()
    watch.mark("a")
    watch.mark("b", 0.25)
    watch.mark("a")
    watch.end()
    timings = watch.timings()
    assert list(timings) == ["a", "b", "total"]
    assert plain(timings["b"].wall.p50) == 250.0
    assert timings["a"].wall.n == 1


def test_a_text_is_split_over_its_steps(tmp_path: Path) -> None:
    """A text model whose file is fixed to one text of eight tokens, in int32."""
    request = text_request(tmp_path)
    (tmp_path / "golden.txt").write_text("\ufeffone two three", "utf-8")
    m = measure_artifact(replace(request, sample=str(tmp_path / "golden.txt")))
    assert (m.input, m.dims) == ("golden.txt", {"batch": 1, "length": 3})
    assert list(m.split) == ["tokenize", "batch", "run", "finish", "total"]
    assert m.notes[0] == "length 3 runs as 8"
    seeded = measure_artifact(request)
    assert seeded.dims == {"batch": 1, "length": 8}
    assert not seeded.notes or "runs as" not in seeded.notes[0]
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(MeasureError, match="UTF-8") as caught:
        measure_artifact(replace(request, sample=str(tmp_path / "latin.txt")))
    assert caught.value.code == "EDGE-MEASURE-005"


def test_what_an_interpreter_takes_is_not_measured(
    request_: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgeserve.backends.onnx.run import OnnxSession

    monkeypatch.setattr(OnnxSession, "simulated", True)
    with pytest.raises(MeasureError, match="stands in for it") as caught:
        measure_artifact(request_)
    assert caught.value.code == "EDGE-MEASURE-008"


@pytest.mark.parametrize("batch", [1, 3])
def test_each_pass_of_a_split_goes_all_the_way(
    batch: int, with_photo: MeasureRequest, photo: Path
) -> None:
    fed: list[tuple[int, ...]] = []

    def run(feed: Any) -> dict[str, np.ndarray]:
        fed.append(feed["image"].shape)
        return {"logits": np.zeros((batch, 5), np.float32)}

    processor = Processor(PROCESSING, with_photo.signature, "image-classification", tuple("abcde"))
    raw = photo.read_bytes()
    parts = time_steps(processor, raw, run, batch=batch, runs=4, seconds=60.0)
    assert fed == [(batch, 3, 8, 8)] * 5  # one to warm up
    assert {t.wall.n for t in parts.values()} == {4}
