"""Other precisions: what is stored in how many bits, from which ranges, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgeserve import backends
from edgeserve.backends.tflite.schema import op_type, read_model, tensor_dtype
from edgeserve.errors import BackendError, QuantizeError
from edgeserve.types.artifact import Artifact, Recipe

PRECISIONS = ("fp16", "w8", "w8a8")


@pytest.fixture(scope="module")
def derived(digits: Any) -> dict[str, Artifact]:
    return {p: digits.file.quantize(p, digits.samples if p == "w8a8" else ()) for p in PRECISIONS}


@pytest.fixture(scope="module")
def logits(digits: Any, derived: dict[str, Artifact]) -> dict[str, np.ndarray]:
    feed = {"image": digits.images}
    found = {p: digits.file.run(feed, a, threads=1)["logits"] for p, a in derived.items()}
    return {"fp32": digits.file.run(feed)["logits"], **found}


def test_the_float_model_has_learned(digits: Any, logits: dict[str, np.ndarray]) -> None:
    assert (digits.logits.argmax(1) == digits.labels).mean() > 0.96
    np.testing.assert_allclose(logits["fp32"], digits.logits, atol=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_accuracy_drops_by_half_a_point_at_most(
    precision: str, digits: Any, logits: dict[str, np.ndarray]
) -> None:
    """The drop over the test half, and its 95 % interval from the answers that differ (paired)."""
    before = digits.logits.argmax(1) == digits.labels
    after = logits[precision].argmax(1) == digits.labels
    count, lost, won = len(before), int((before & ~after).sum()), int((after & ~before).sum())
    drop = (lost - won) / count
    half = 1.96 * sqrt(max(lost + won - (lost - won) ** 2 / count, 1)) / count
    print(f"{precision}: drop {drop:+.2%} [{drop - half:+.2%}, {drop + half:+.2%}]")
    assert drop <= 0.005
    assert drop + half <= 0.01


@pytest.mark.parametrize(("precision", "most"), [("fp16", 0.003), ("w8", 0.05), ("w8a8", 0.08)])
def test_numbers_differ_as_bits_allow(
    precision: str, most: float, digits: Any, logits: dict[str, np.ndarray]
) -> None:
    noise = np.sqrt(((logits[precision] - digits.logits) ** 2).mean()) / digits.logits.std()
    assert 0 < noise < most


def test_dtypes_of_the_weights_are_counted(derived: dict[str, Artifact], digits: Any) -> None:
    layers = [p for _, p in digits.file.net.module.named_parameters() if p.ndim > 1]
    count = sum(p.numel() for p in layers)
    assert derived["fp16"].provenance.weights["float16"] == count
    assert derived["fp16"].provenance.eight_bit_share == 0
    for precision in ("w8", "w8a8"):
        assert derived[precision].provenance.weights["int8"] == count
        assert derived[precision].provenance.eight_bit_share > 0.95


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_file_keeps_its_face(precision: str, derived: dict[str, Artifact], digits: Any) -> None:
    artifact, parent = derived[precision], digits.file.artifact
    assert (artifact.io, artifact.buckets) == (parent.io, parent.buckets)
    assert artifact.provenance.parent == parent.sha256
    options = {"activation": "s8", "reduce_range": "false"} if precision == "w8a8" else {}
    assert artifact.provenance.recipe == Recipe(precision=precision, options=options)  # type: ignore[arg-type]
    assert "ai-edge-quantizer" in artifact.provenance.tools
    graph = backends.get("tflite").inspect(artifact, digits.file.folder / precision)
    convolutions = [op for op in graph.ops if "CONV" in op.type]
    assert [op.module for op in convolutions] == ["stem.0", "deep", "point.0"]
    assert [op.source for op in convolutions] == ["conv2d", "conv2d_1", "conv2d_2"]


def test_weights_have_a_scale_for_each_channel(derived: dict[str, Artifact], digits: Any) -> None:
    """Symmetric, the largest weight of a channel being 127: numpy from PyTorch's own weights."""
    model = read_model(digits.file.folder / "w8" / "model.tflite")
    weight = digits.file.net.module.deep.weight.detach().numpy()[:, 0]
    held = next(t for t in model.subgraphs[0].tensors if tuple(t.shape or ()) == (1, 3, 3, 24))
    scales = np.abs(weight).max((1, 2)) / 127
    np.testing.assert_allclose(held.quantization.scale, scales, rtol=1e-6)
    assert set(held.quantization.zeroPoint) == {0}
    stored = model.buffers[held.buffer].data.view(np.int8).reshape(3, 3, 24).transpose(2, 0, 1)
    np.testing.assert_array_equal(stored, np.round(weight / scales[:, None, None]))


def test_ranges_are_the_true_ones_whatever_the_order(digits: Any) -> None:
    """One sample in 12 has the largest numbers; a moving average would forget or overrate it."""
    rare = {"image": digits.samples[0]["image"] * 5 - 2}
    samples = digits.samples[:12]
    first, last = [rare, *samples], [*samples, rare]
    a, b = digits.file.quantize("w8a8", first), digits.file.quantize("w8a8", last)
    assert a.files == b.files
    model = read_model(digits.file.folder / "w8a8" / "model.tflite")
    graph = model.subgraphs[0]
    quantize = next(op for op in graph.operators if op_type(model, op) == "QUANTIZE")
    held = graph.tensors[quantize.outputs[0]].quantization
    low, high = float(rare["image"].min()), float(rare["image"].max())
    assert (low, high) == (-2.0, 3.0)
    np.testing.assert_allclose(held.scale, [(high - low) / 255], rtol=1e-5)


def test_what_computes_in_which_bits(derived: dict[str, Artifact], digits: Any) -> None:
    """Convolutions and what lies between them in 8 bits; the last product gives float logits."""
    model = read_model(digits.file.folder / "w8a8" / "model.tflite")
    graph = model.subgraphs[0]
    made = {
        op_type(model, op): tensor_dtype(graph.tensors[op.outputs[0]]) for op in graph.operators
    }
    for type in ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "MAX_POOL_2D"):
        assert made[type] == "int8", type
    assert made["FULLY_CONNECTED"] == "float32"
    head = next(op for op in graph.operators if op_type(model, op) == "FULLY_CONNECTED")
    assert tensor_dtype(graph.tensors[head.inputs[1]]) == "int8"


def test_a_text_encoder_keeps_its_answers_at_every_length(text_file: Any) -> None:
    ids = np.random.default_rng(0).integers(0, 60, (4, 11))
    feed = {"ids": ids, "mask": np.ones_like(ids)}
    right = text_file.net.oracle(feed)["hidden"]
    for precision, least in (("fp16", 0.99999), ("w8", 0.999), ("w8a8", 0.995)):
        artifact = text_file.quantize(precision)  # its products measure their own ranges
        assert artifact.buckets == text_file.artifact.buckets
        got = text_file.run(feed, artifact)["hidden"]
        cosine = (
            (got * right).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(right, axis=-1)
        )
        assert cosine.min() > least, precision
    graph = backends.get("tflite").inspect(artifact, text_file.folder / "w8a8")
    assert {op.source for op in graph.ops if op.type == "RSQRT"} == {"layer_norm"}
    lookups = [op for op in graph.ops if op.type == "EMBEDDING_LOOKUP"]
    assert lookups
    assert "DEQUANTIZE" not in graph.op_counts


def test_lengths_are_calibrated_one_by_one(convert: Any, zoo: Any) -> None:
    """Convolutions over text: each length has ranges, from samples cut or padded to it."""
    import msgspec

    from edgeserve.backends.torch.export.export import ExportOptions
    from edgeserve.processing.steps.tokenize import Tokenize
    from edgeserve.types.artifact import FileEntry
    from edgeserve.types.processing import InputProcessing, Processing

    class Line(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.conv = nn.Embedding(30, 8), nn.Conv1d(8, 12, 3, padding=1)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.conv(self.words(ids).transpose(1, 2)))

    torch.manual_seed(0)
    dims = {"ids": {0: ("batch", 1, 4), 1: ("length", 1, 20)}}
    net = zoo.export(
        "tflite-line", Line().eval(), (torch.zeros(2, 9, dtype=torch.int64),), ExportOptions(dims)
    )
    step = Tokenize(
        tokenizer=FileEntry(path="assets/t.json", size=1, sha256="0" * 64),
        part="ids",
        max_length=20,
    )
    processing = Processing(inputs=(InputProcessing(name="ids", steps=(step,)),))
    net.exported = msgspec.structs.replace(net.exported, processing=processing)
    file = convert(net)
    rng = np.random.default_rng(1)
    samples = [{"ids": rng.integers(0, 30, (1, n))} for n in (3, 12, 18, 20)]
    artifact = file.quantize("w8a8", samples)
    for length in (5, 18):
        feed = {"ids": rng.integers(0, 30, (2, length))}
        right = net.oracle(feed)["output"]
        got = file.run(feed, artifact)["output"][..., : length - 1]
        assert np.abs(got - right[..., : length - 1]).max() < 0.05 * right.max()


# What stays float


def test_ops_of_a_module_or_a_node_stay_float(digits: Any, derived: dict[str, Artifact]) -> None:
    def eight_bit(artifact: Artifact) -> set[str | None]:
        root = digits.file.folder / artifact.precision
        graph = backends.get("tflite").inspect(artifact, root)
        dtypes = {weight.name: weight.dtype for weight in graph.weights}
        return {op.module for op in graph.ops if dtypes.get((*op.inputs, "", "")[1]) == "int8"}

    everything = eight_bit(digits.file.quantize("w8a8", digits.samples[:8]))
    assert everything == {"stem.0", "deep", "point.0", "head"}
    kept = eight_bit(digits.file.quantize("w8a8", digits.samples[:8], keep=["point", "linear"]))
    assert kept == {"stem.0", "deep"}


def test_an_op_to_keep_that_is_not_there_is_refused(digits: Any) -> None:
    with pytest.raises(QuantizeError) as error:
        digits.file.quantize("w8", keep=["no.such.module"])
    assert error.value.code == "EDGE-QUANTIZE-009"
    assert "no.such.module" in error.value.message


# Samples


def test_fp16_and_w8_do_not_look_at_samples(digits: Any) -> None:
    def never() -> Iterator[Any]:
        raise AssertionError("samples were touched")
        yield

    for precision in ("fp16", "w8"):
        digits.file.quantize(precision, never())


def test_without_samples_nothing_is_calibrated(digits: Any) -> None:
    with pytest.raises(QuantizeError) as error:
        digits.file.quantize("w8a8", [])
    assert error.value.code == "EDGE-QUANTIZE-001"


def test_a_sample_that_overflows_is_named(made: Callable[..., Any]) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 2, 1))
    with torch.no_grad():
        net[0].weight.fill_(10)
    file = made("overflow", net, (torch.randn(1, 1, 3, 3),))
    sizes = (1.0, -2.0, 3e38, 4.0)
    with pytest.raises(QuantizeError) as error:
        file.quantize("w8a8", [{"input": np.full((1, 1, 3, 3), x, np.float32)} for x in sizes])
    assert error.value.code == "EDGE-QUANTIZE-010"
    assert "sample 2" in error.value.message


def test_a_choice_that_the_format_does_not_have_is_told(
    digits: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    wished = Recipe(precision="w8a8", options={"activation": "u8", "samples": "8"})
    made = backends.get("tflite").quantize(
        digits.file.artifact,
        digits.file.root,
        wished,
        digits.samples[:8],
        digits.file.folder / "u8",
    )
    assert made.provenance.recipe is not None
    assert made.provenance.recipe.options == {
        "activation": "s8",
        "reduce_range": "false",
        "samples": "8",
    }
    assert "activation is always s8 in TFLite, not u8" in capsys.readouterr().out


# What cannot be made


def test_nothing_to_quantize_is_no_success(zoo: Any, convert: Any) -> None:
    with pytest.raises(QuantizeError) as error:
        convert(zoo.net("difference")).quantize("w8")
    assert error.value.code == "EDGE-QUANTIZE-011"


def test_a_weight_beyond_float16_is_refused(made: Callable[..., Any]) -> None:
    net = nn.Sequential(nn.Linear(4, 3))
    with torch.no_grad():
        net[0].weight[1, 2] = 70_000
    file = made("large", net, (torch.randn(1, 4),))
    with pytest.raises(QuantizeError) as error:
        file.quantize("fp16")
    assert error.value.code == "EDGE-QUANTIZE-021"


def test_a_precision_that_is_not_made(digits: Any) -> None:
    with pytest.raises(BackendError) as error:
        digits.file.quantize("w4")
    assert error.value.code == "EDGE-BACKEND-006"
