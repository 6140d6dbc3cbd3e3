"""Real models through real exports: a tiny picture classifier trained here, and its ONNX file.

The classifier tells three colours and two textures apart. Its data hold fine checks that a correct
resize averages away and a wrong one does not, so that preprocessing has something to get wrong.
"""

from __future__ import annotations

import io
import shutil
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
import torch
from PIL import Image
from torch import nn

from edgeserve import backends
from edgeserve.convert.request import ExportRequest
from edgeserve.convert.source import export_source
from edgeserve.files import describe
from edgeserve.processing import normalize_from
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.layout import Layout
from edgeserve.processing.steps.resize import Resize
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.top_k import TopK
from edgeserve.types.artifact import Artifact
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.reports import Report
from edgeserve.types.source import Exported, Source
from edgeserve.validate.collect import collect_answers
from edgeserve.validate.judge import judge
from edgeserve.validate.requests import Answers, AnswersRequest, JudgeRequest

SIZE = 32
LABELS = tuple(
    f"{colour} {texture}" for colour in ("red", "green", "blue") for texture in ("plain", "checked")
)
MEAN, STD = (0.5, 0.45, 0.4), (0.25, 0.3, 0.35)
GROUPS = 400


def second_colour(number: int) -> int | None:
    """Every tenth card has nearly two colours at once, and the network is not to be sure of it."""
    return (number % 6 // 2 + 1 + number // 10 % 2) % 3 if number % 10 == 9 else None


def target(number: int) -> torch.Tensor:
    """Probabilities that the network is taught: float32 [6]."""
    classes = torch.zeros(6)
    classes[number % 6] = 1.0
    if (other := second_colour(number)) is not None:
        classes[number % 6] = classes[2 * other + number % 2] = 0.5
    return classes


def card(number: int) -> np.ndarray:
    """A picture of class ``number % 6``: uint8 RGB, 2.5 to 4 times the model's size."""
    rng = np.random.default_rng((7, number))
    colour, checked = divmod(number % 6, 2)
    side = int(rng.integers(80, 128))
    y, x = np.mgrid[0:side, 0:side]
    image = np.full((side, side, 3), rng.uniform(30, 90))
    image[..., colour] += rng.uniform(60, 110)
    if (other := second_colour(number)) is not None:
        image[..., other] = image[..., colour] + rng.uniform(-2, 2)
    if checked:
        cell = side // 8
        image += 60.0 * (((y // cell + x // cell) % 2)[..., None] - 0.5)
    elif number % 4 < 2:  # too fine to be seen: two pixels of a picture that shrinks threefold
        image += 90.0 * (((y // 2 + x // 2) % 2)[..., None] - 0.5)
    image += rng.normal(0, 6, image.shape)
    return np.clip(image, 0, 255).astype(np.uint8)


def prepared(image: Image.Image) -> np.ndarray:
    """The declared preprocessing, by Pillow and numpy alone: float32 [3, 32, 32]."""
    small = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    scaled = (np.asarray(small, np.float64) / 255 - MEAN) / STD
    return scaled.transpose(2, 0, 1).astype(np.float32)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=2, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 6),
    )


def trained() -> nn.Module:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = network()
    numbers = range(600_000, 600_240)
    pictures = np.stack([prepared(Image.fromarray(card(number))) for number in numbers])
    images, targets = torch.from_numpy(pictures), torch.stack([target(n) for n in numbers])
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for step in range(90):
        batch = torch.arange(step * 24, (step + 1) * 24) % 240
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(images[batch]), targets[batch]).backward()
        optimiser.step()
    doubtful = [second_colour(number) is not None for number in numbers]
    return tempered(net.eval(), images[torch.tensor(doubtful)])


@torch.no_grad()
def tempered(net: Any, images: torch.Tensor) -> nn.Module:
    """Scale the last layer until half of these inputs are no clear ones, on any machine.

    How sure a network trained for a second is of them hangs on the last bits of its arithmetic.
    """
    for _ in range(100):
        best = net(images).softmax(1).sort(1).values
        if float((best[:, -1] - best[:, -2] < 0.05).float().mean()) >= 1 / 2:
            break
        for parameter in net[-1].parameters():
            parameter *= 0.95
    return net


PROCESSING = Processing(
    inputs=(
        InputProcessing(
            name="image",
            steps=(
                Decode(),
                Resize(height=SIZE, width=SIZE, filter="bilinear"),
                normalize_from(1 / 255, MEAN, STD),
                Layout(order="CHW"),
            ),
        ),
    ),
    outputs=(Softmax(output="logits"), TopK(output="logits", k=5)),
)


_FACTORIES = types.ModuleType("edgeserve_test_factories")


def exported(
    folder: Path, module: nn.Module, examples: tuple[torch.Tensor, ...], **options: Any
) -> Exported:
    """Export into ``folder`` as convert does, from a factory that hands the module over."""
    sys.modules[_FACTORIES.__name__] = _FACTORIES
    _FACTORIES.factory = lambda: (module, examples, options)  # type: ignore[attr-defined]
    source = Source(kind="factory", location=f"{_FACTORIES.__name__}:factory", folder=str(folder))
    return export_source(ExportRequest(source=source, out=str(folder)))


@dataclass(frozen=True)
class Model:
    """An exported model, its ONNX candidate, and the folder that answers are stored in."""

    root: Path
    exported: Exported
    artifact: Artifact

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def onnx(self) -> Path:
        return self.root / "candidate" / self.artifact.entry

    def answers(self, **request: Any) -> Answers:
        """Ask the reference; answers lie in ``samples`` (or in ``out``) below the root."""
        source = request.pop("source_folder", str(self.source))
        out = str(self.root / request.pop("out", "samples"))
        request = {"golden": 0} | request  # drawing pictures takes longer than all the rest
        return collect_answers(AnswersRequest(source_folder=source, out=out, **request))

    def judged(self, file: Path | None = None, **request: Any) -> Report:
        """Judge the candidate, or another file in its place."""
        root, artifact = self.root / "candidate", self.artifact
        if file is not None:
            root = file.parent
            entry = describe(root, file.name)
            artifact = Artifact(
                format="onnx",
                precision=request.pop("precision", "fp32"),
                entry=file.name,
                files=(entry,),
                io=artifact.io,
            )
        return self.judged_as(artifact, root, **request)

    def judged_as(self, artifact: Artifact, root: Path, **request: Any) -> Report:
        """Judge any artifact by this model's answers."""
        samples = str(self.root / request.pop("out", "samples"))
        return judge(
            JudgeRequest(
                artifact=artifact,
                root=str(root),
                source_folder=str(self.source),
                samples=samples,
                **request,
            )
        )


def model(
    root: Path, module: nn.Module, examples: tuple[torch.Tensor, ...], **options: Any
) -> Model:
    made = exported(root / "source", module, examples, **options)
    artifact = backends.get("onnx").export(made, root / "source", root / "candidate")
    return Model(root, made, artifact)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in PNG, one a group; half of them are for evaluation."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(GROUPS):
        Image.fromarray(card(i)).save(folder / f"card-{i}.png", compress_level=1)
    return folder


@pytest.fixture(scope="session")
def few_photos(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """A fifth of `photos`, of every class, where two hundred groups are not needed."""
    folder = tmp_path_factory.mktemp("few")
    for i in range(GROUPS // 5):
        shutil.copy(photos / f"card-{i}.png", folder)
    return folder


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Model:
    """The trained classifier, converted, with the reference's answers to `photos`."""
    example = torch.from_numpy(prepared(Image.fromarray(card(3))))[None]
    made = model(
        tmp_path_factory.mktemp("classifier"),
        trained(),
        (example,),
        dynamic_shapes=({0: "batch"},),
        input_names=("image",),
        output_names=("logits",),
        task="image-classification",
        processing=PROCESSING,
        labels=LABELS,
    )
    made.answers(data=str(photos))
    return made


class Pair(nn.Module):
    """Two inputs and two outputs of the same shape, not interchangeable."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(self.first(left)) + right, self.second(right) * left


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """`ComplexPair`, converted, task ``tensors``, with answers to generated inputs only."""
    torch.manual_seed(2)
    made = model(
        tmp_path_factory.mktemp("pair"),
        Pair().eval(),
        (torch.randn(2, 5), torch.randn(2, 5)),
        dynamic_shapes=({0: "batch"}, {0: "batch"}),
        output_names=("a", "b"),
    )
    made.answers()
    return made


@pytest.fixture(scope="session")
def on_rows(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A classifier of four numbers that ends in a softmax, with answers to generated inputs."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)).eval()
    made = model(
        tmp_path_factory.mktemp("rows"), net, (torch.randn(1, 4),), task="image-classification"
    )
    made.answers()
    return made


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    """Convert any module: ``build(module, examples, **options of a factory)``."""

    def make(module: nn.Module, *examples: torch.Tensor, **options: Any) -> Model:
        return model(tmp_path_factory.mktemp("built"), module.eval(), examples, **options)

    return make


class Graph:
    """An ONNX file opened for sabotage."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = proto

    def weights(self) -> dict[str, np.ndarray]:
        """Float weights by name, as copies."""
        found = {i.name: onnx.numpy_helper.to_array(i).copy() for i in self.proto.graph.initializer}
        return {name: a for name, a in found.items() if a.dtype == np.float32 and a.size > 1}

    def put(self, changed: dict[str, np.ndarray]) -> None:
        """Replace weights, or add constants."""
        for initializer in self.proto.graph.initializer:
            if initializer.name in changed:
                array = changed.pop(initializer.name)
                initializer.CopyFrom(onnx.numpy_helper.from_array(array, initializer.name))
        for name, array in changed.items():
            self.proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))

    def rename(self, names: dict[str, str]) -> None:
        """Rename tensors inside the graph, not its declared inputs and outputs."""
        for node in self.proto.graph.node:
            for side in (node.input, node.output):
                side[:] = [names.get(name, name) for name in side]

    def before(self, *nodes: onnx.NodeProto) -> None:
        """Put nodes between the input and all that reads it; the last one gives "changed"."""
        name = self.proto.graph.input[0].name
        for node in self.proto.graph.node:
            node.input[:] = ["changed" if each == name else each for each in node.input]
        for node in reversed(nodes):
            self.proto.graph.node.insert(0, node)

    def after(self, output: str, node: onnx.NodeProto) -> None:
        """Put a node, which reads "inner", behind an output."""
        self.rename({output: "inner"})
        self.proto.graph.node.append(node)


Change = Callable[[Graph], None]


@pytest.fixture
def sabotaged(tmp_path: Path) -> Callable[[Model, Change], Path]:
    """A copy of a model's ONNX file with a change made to it."""

    def make(model: Model, change: Change) -> Path:
        graph = Graph(onnx.load(model.onnx))
        change(graph)
        path = tmp_path / "model.onnx"
        onnx.save(graph.proto, path)
        return path

    return make


@pytest.fixture
def live() -> Iterator[Callable[[Path], str]]:
    """``live(workspace)``: the address of an endpoint that serves it."""
    from edgeserve.serve import ServeOptions
    from edgeserve.serve.server import RunningServer, serve
    from edgeserve.serve.telemetry import Log

    running: list[tuple[RunningServer, threading.Thread]] = []

    def start(workspace: Path) -> str:
        started = threading.Event()
        found: list[RunningServer] = []

        def on_start(one: RunningServer) -> None:
            found.append(one)
            started.set()

        options = ServeOptions(bundles=(str(workspace),), threads=1, workers=1, drain_s=0.0, port=0)
        thread = threading.Thread(
            target=serve, args=(options, Log(io.StringIO()), on_start), daemon=True
        )
        thread.start()
        assert started.wait(60)
        running.append((found[0], thread))
        return f"http://127.0.0.1:{found[0].port}"

    yield start
    for one, thread in running:
        one.end()
        thread.join(30)
