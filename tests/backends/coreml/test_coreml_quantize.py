"""8-bit packages: which weights are 8 bits, with which numbers, and where activations are cut."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from edgeserve.backends.coreml.dynamic_ranges import has_dynamic_sizes
from edgeserve.backends.coreml.inspect import constants_of
from edgeserve.backends.coreml.spec import block_of, operations_of
from edgeserve.errors import BackendError, QuantizeError
from edgeserve.types.artifact import Recipe


class Stages(nn.Module):
    """Convolutions of every kind with clips behind them, a residual sum and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6())
        self.depth = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Hardtanh(-1, 2))
        self.head = nn.Linear(16, 6)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        y = self.stem(image)
        return self.head((y + self.depth(y)).mean((2, 3)))


@pytest.fixture(scope="module")
def package(packages: Any) -> Any:
    torch.manual_seed(0)
    net = packages.export(Stages(), (4 * torch.randn(1, 3, 16, 16),), ({0: ("batch", 1, 4)},))
    return packages.make(net)


@pytest.fixture(scope="module")
def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"image": 4 * rng.normal(size=(1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]


@pytest.fixture(scope="module")
def weights_only(packages: Any, package: Any) -> Any:
    return packages.quantize(package, Recipe("w8"))


@pytest.fixture(scope="module")
def full(packages: Any, package: Any, samples: Any) -> Any:
    return packages.quantize(package, Recipe("w8a8"), samples)


def stored(package: Any) -> dict[str, np.ndarray]:
    """The 8-bit weights with their scales applied, as coremltools' own reader decodes them."""
    from coremltools.converters.mil.frontend.milproto.load import load

    spec = package.spec
    weights = str(package.folder / "Data/com.apple.CoreML/weights")
    program = load(spec, spec.specificationVersion, weights)
    return {
        op.outputs[0].name: op.materialized_val_inference()
        for op in program.functions["main"].operations
        if op.op_type.startswith("constexpr_")
    }


def test_weights_are_rounded_per_channel(package: Any, weights_only: Any) -> None:
    """What the file decodes to is a multiple of max|w| / 127 in each channel, the nearest."""
    module = package.net.module
    right = [module.stem[0].weight, module.depth[0].weight, module.head.weight]
    found = {array.shape: array for array in stored(weights_only).values()}
    assert len(found) == 3
    for weight in (tensor.detach().numpy().astype(np.float64) for tensor in right):
        axes = tuple(range(1, weight.ndim))
        scale = np.abs(weight).max(axis=axes, keepdims=True) / 127
        # Half a step, and an eighth for weights and scales that are float16 on the way.
        assert (np.abs(found[weight.shape] - weight) <= 0.63 * scale).all()
        steps = found[weight.shape] / scale
        assert np.abs(steps - np.round(steps)).max() <= 0.13


def test_all_matrices_are_8_bit_and_no_vector_is(package: Any, weights_only: Any) -> None:
    parameters = list(package.net.module.parameters())
    provenance = weights_only.artifact.provenance
    assert provenance.weights["int8"] == sum(p.numel() for p in parameters if p.dim() > 1)
    vectors = sum(p.numel() for p in parameters if p.dim() == 1)
    scales = 16 + 16 + 6
    assert provenance.weights["float16"] == vectors + scales
    assert provenance.parent == package.artifact.sha256
    assert provenance.recipe == Recipe("w8", (), {"compute": "fp16", "target": "iOS16"})
    assert weights_only.artifact.precision == "w8"
    assert weights_only.artifact.io == package.artifact.io


def test_it_answers_nearly_as_before(package: Any, weights_only: Any, full: Any) -> None:
    feed = {"image": package.net.feed["image"]}
    assert 1e-4 < weights_only.error(feed) <= 0.02
    assert 1e-4 < full.error(feed) <= 0.05


def test_float32_arithmetic_can_be_kept_for_weights_only(packages: Any, package: Any) -> None:
    made = packages.quantize(package, Recipe("w8", options={"compute": "fp32"}))
    assert set(made.artifact.provenance.weights) == {"int8", "float32"}
    with packages.backend.load(made.artifact, made.root) as session:
        assert session.note.startswith("float32")
    assert made.error() <= 0.02


def test_the_description_stays(package: Any, weights_only: Any, full: Any) -> None:
    for made in (weights_only, full):
        changed = made.spec.description
        assert changed.input == package.spec.description.input
        assert changed.output == package.spec.description.output
        assert (
            changed.metadata.shortDescription == package.spec.description.metadata.shortDescription
        )
        assert "conversion_date" not in str(changed.metadata)


def test_every_operation_of_the_source_is_still_known(packages: Any, full: Any) -> None:
    graph = packages.backend.inspect(full.artifact, full.root)
    by_type = {op.type: (op.source, op.module) for op in graph.ops}
    assert by_type["linear"] == ("linear", "head")
    assert by_type["relu6"] == ("hardtanh", "stem.1")
    assert {op.module for op in graph.ops if op.type == "conv"} == {"stem.0", "depth.0"}


@pytest.mark.parametrize("entry", ["depth.0", "depth", "conv2d_1"])
def test_what_is_to_stay_float_stays_float(packages: Any, package: Any, entry: str) -> None:
    made = packages.quantize(package, Recipe("w8", (entry,)))
    depthwise = package.net.module.depth[0].weight.numel()
    all_of_them = sum(p.numel() for p in package.net.module.parameters() if p.dim() > 1)
    assert made.artifact.provenance.weights["int8"] == all_of_them - depthwise
    assert made.artifact.provenance.recipe.keep_float == (entry,)


def test_activations_that_are_to_stay_float_stay_float(
    packages: Any, package: Any, full: Any, samples: Any
) -> None:
    made = packages.quantize(package, Recipe("w8a8", ("depth", "head")), samples)
    read = {op.type: op.inputs for op in packages.backend.inspect(made.artifact, made.root).ops}
    assert not any("dequant" in name for name in read["linear"])
    whole = packages.backend.inspect(full.artifact, full.root).op_counts
    assert (
        packages.backend.inspect(made.artifact, made.root).op_counts["quantize"] < whole["quantize"]
    )


def test_something_unknown_to_stay_float_is_refused(packages: Any, package: Any) -> None:
    with pytest.raises(QuantizeError) as error:
        packages.quantize(package, Recipe("w8", ("depth.9",)))
    assert error.value.code == "EDGE-QUANTIZE-009"
    assert "depth.9" in error.value.message


def scales_of(package: Any, kind: str = "quantize") -> list[tuple[float, int, str]]:
    """Scale, zero point and the operation before each (de)quantize, read with coremltools."""
    from coremltools.converters.mil.frontend.milproto.load import load

    spec = package.spec
    weights = str(package.folder / "Data/com.apple.CoreML/weights")
    program = load(spec, spec.specificationVersion, weights)
    return [
        (
            float(op.scale.val),
            int(op.zero_point.val) if op.zero_point is not None else 0,
            op.input.op.op_type,
        )
        for op in program.functions["main"].operations
        if op.op_type == kind
    ]


def test_ranges_are_those_of_all_samples(package: Any, full: Any, samples: Any) -> None:
    """Scales come out of PyTorch's own numbers: of the input, and of the sum in the middle."""
    largest = max(float(np.abs(sample["image"]).max()) for sample in samples)
    module = package.net.module
    with torch.no_grad():
        stems = [module.stem(torch.tensor(s["image"])) for s in samples]
        total = max(float((y + module.depth(y)).abs().max()) for y in stems)
    scales = [scale for scale, *_ in scales_of(full, "dequantize")]
    assert scales[0] == pytest.approx(largest / 127, rel=2e-3)
    assert pytest.approx(total / 127, rel=5e-3) in scales


def test_what_a_clip_cuts_off_takes_no_steps(package: Any, full: Any, samples: Any) -> None:
    module = package.net.module
    with torch.no_grad():
        before = [module.depth[0](module.stem(torch.tensor(s["image"]))) for s in samples]
    assert max(float(t.abs().max()) for t in before) > 2.2, "the clip has nothing to cut off"
    behind = {before: scale for scale, _, before in scales_of(full)}
    assert behind["conv"] == pytest.approx(2 / 127, rel=2e-3)
    assert behind["relu6"] == pytest.approx(6 / 127, rel=2e-3)


def test_unsigned_activations_have_a_zero_point(packages: Any, package: Any, samples: Any) -> None:
    made = packages.quantize(package, Recipe("w8a8", options={"activation": "u8"}), samples)
    assert any(zero for _, zero, _ in scales_of(made))
    assert made.error() <= 0.05


def test_indices_and_masks_are_not_quantized(packages: Any) -> None:
    class Biased(nn.Module):
        """Scores with a mask of -30000, and an index that is computed."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(9, 8), nn.Linear(8, 8)

        def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            y = self.out(self.table(ids + 1))
            return (y + (keep - 1)[..., None] * 30000.0).softmax(1)

    ids, keep = torch.tensor([[1, 5, 0]]), torch.tensor([[1.0, 1.0, 0.0]])
    package = packages.make(packages.export(Biased(), (ids, keep)))
    made = packages.quantize(package, Recipe("w8a8"), [package.net.feed])
    assert made.error() <= 0.02


def test_a_package_of_open_length_is_calibrated_at_any(packages: Any) -> None:
    rng = np.random.default_rng(0)
    feeds = [{"audio": rng.normal(size=(1, 4, n)).astype(np.float32)} for n in (9, 40, 23)]
    package = packages("audio")
    assert has_dynamic_sizes(package.artifact.io)
    made = packages.quantize(package, Recipe("w8a8"), feeds)
    assert 1e-4 < made.error(feeds[1]) <= 0.05


def test_without_samples_there_is_no_calibration(packages: Any, package: Any) -> None:
    with pytest.raises(QuantizeError) as error:
        packages.quantize(package, Recipe("w8a8"), [])
    assert error.value.code == "EDGE-QUANTIZE-001"


def test_a_sample_that_makes_nan_is_refused(packages: Any, package: Any, samples: Any) -> None:
    broken = {"image": np.full((1, 3, 16, 16), np.inf, np.float32)}
    with pytest.raises(QuantizeError) as error:
        packages.quantize(package, Recipe("w8a8"), [samples[0], broken])
    assert error.value.code == "EDGE-QUANTIZE-010"
    assert "sample 1" in error.value.message


@pytest.mark.parametrize(
    ("precision", "options"),
    [("w8", {"compute": "int8"}), ("w8a8", {"compute": "fp32"}), ("w8a8", {"activation": "s16"})],
)
def test_unknown_values_of_options_are_refused(
    packages: Any, package: Any, precision: Any, options: dict[str, str]
) -> None:
    with pytest.raises(QuantizeError) as error:
        packages.quantize(package, Recipe(precision, options=options))
    assert error.value.code == "EDGE-QUANTIZE-008"


def test_a_model_without_weights_cannot_be_quantized(packages: Any) -> None:
    with pytest.raises(QuantizeError) as error:
        packages.quantize(packages("difference"), Recipe("w8"))
    assert error.value.code == "EDGE-QUANTIZE-011"


@pytest.mark.parametrize("precision", ["w4", "fp16"])
def test_other_precisions_do_not_derive(packages: Any, package: Any, precision: Any) -> None:
    with pytest.raises(BackendError) as error:
        packages.quantize(package, Recipe(precision))
    assert error.value.code == "EDGE-BACKEND-006"


def test_the_same_recipe_gives_the_same_bytes(
    packages: Any, package: Any, samples: Any, full: Any
) -> None:
    assert (
        packages.quantize(package, Recipe("w8a8"), samples).artifact.sha256 == full.artifact.sha256
    )


def test_packages_of_others_have_constants_too(full: Any) -> None:
    """Without edgeserve's notes in the file, as anybody's tools would write it."""
    spec = full.spec
    spec.description.metadata.Clear()
    function = spec.mlProgram.functions["main"]
    dtypes = {each.dtype for each in constants_of(function)}
    assert dtypes == {"int8", "float16"}
    assert {op.type for op in operations_of(block_of(function))} >= {"quantize", "conv", "linear"}
    assert msgspec.structs.asdict(full.artifact.io)["signature"] is None
