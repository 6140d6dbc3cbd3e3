"""Servers whose preprocessing has one fault each, and what `convert` says of them.

    python -m dev.corpus.servers            # all; one line a server, then the figures
    python -m dev.corpus.servers luma bgr   # some

A small network with fixed weights answers behind some forty preprocessings: as the package
declares them but for one step (five have two), done as Pillow, OpenCV or torchvision do it. The
right answers are those of Pillow itself and `torch.nn.functional.interpolate`, not of the code that
searches. Of every server the step is to be named, and what `convert` keeps has to hold its golden
cases.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from edgeserve import api
from edgeserve.types.base import decode
from edgeserve.validate.requests import Answers
from edgeserve.wrapper.certificate import verify

SIZE = 64
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
LABELS = ["ant", "bee", "cat", "dog", "eel", "fox"]

_Channels = tuple[float, float, float]
_Resize = Callable[[np.ndarray, int, int], np.ndarray]


class Net(torch.nn.Module):
    """Two convolutions and a linear layer; answers follow colours and fine structure."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 5, stride=2)
        self.second = torch.nn.Conv2d(16, 32, 3, stride=2)
        self.last = torch.nn.Linear(32, len(LABELS))
        draw = torch.Generator().manual_seed(3)
        for weights in self.parameters():
            spread = (1.6 / weights[0].numel()) ** 0.5 if weights.dim() > 1 else 0.1
            weights.data = torch.randn(weights.shape, generator=draw) * spread

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        seen = torch.relu(self.second(torch.relu(self.first(pixels))))
        return self.last(seen.mean((2, 3))) * 3


def pillow(kind: Image.Resampling) -> _Resize:
    """As Pillow resizes: 8 bits in, 8 bits out."""
    return lambda a, h, w: np.asarray(
        Image.fromarray(a.astype(np.uint8)).resize((w, h), kind), np.float64
    )


def interpolated(
    mode: str, *, antialias: bool, bits: Callable[[np.ndarray], np.ndarray]
) -> _Resize:
    """As torchvision resizes tensors, and OpenCV pictures where levels are rounded."""

    def resize(array: np.ndarray, height: int, width: int) -> np.ndarray:
        planes = torch.from_numpy(array.transpose(2, 0, 1).astype(np.float64))[None]
        options: dict[str, Any] = {} if mode == "nearest" else {"antialias": antialias}
        made = torch.nn.functional.interpolate(planes, (height, width), mode=mode, **options)
        return bits(np.clip(made[0].numpy().transpose(1, 2, 0), 0, 255))

    return resize


def area(array: np.ndarray, height: int, width: int) -> np.ndarray:
    """As OpenCV's INTER_AREA: the mean over the interval that a new pixel covers."""
    for axis, size in ((0, height), (1, width)):
        fine = np.moveaxis(np.repeat(array, size, axis), axis, 0)
        array = np.moveaxis(fine.reshape(size, -1, *fine.shape[1:]).mean(1), 0, axis)
    return np.rint(array)


def opened(raw: bytes) -> Image.Image:
    """As Pillow decodes, without a look at the EXIF orientation."""
    return Image.open(io.BytesIO(raw)).convert("RGB")


def shrunk(raw: bytes) -> Image.Image:
    """A JPEG decoded at half its size, which saves a server time."""
    image = Image.open(io.BytesIO(raw))
    image.draft("RGB", (image.width // 2, image.height // 2))
    return image.convert("RGB")


def repeated_chroma(raw: bytes) -> Image.Image:
    """As JPEG decoders that repeat the chroma of 2 x 2 pixels instead of interpolating it."""
    image = Image.open(io.BytesIO(raw))
    if image.format != "JPEG":
        return image.convert("RGB")
    levels = np.array(image.convert("YCbCr"))
    height, width = levels.shape[0] // 2 * 2, levels.shape[1] // 2 * 2
    blocks = levels[:height, :width, 1:].reshape(height // 2, 2, width // 2, 2, 2)
    mean = np.rint(blocks.mean((1, 3), keepdims=True)).astype(np.uint8)
    levels[:height, :width, 1:] = np.broadcast_to(mean, blocks.shape).reshape(height, width, 2)
    return Image.fromarray(levels, "YCbCr").convert("RGB")


def _as_is(levels: np.ndarray) -> np.ndarray:
    return levels


_BILINEAR = pillow(Image.Resampling.BILINEAR)


@dataclass(frozen=True)
class Server:
    """One preprocessing; the defaults are what the package declares.

    Attributes:
        name: What to call it.
        words: What the finding must contain; "several" for two faults.
        declared: "exact" (64 x 64), or "crop" (shorter side to 73, middle 64 x 64).
        resize: How levels are resampled.
        fit: How the picture is fitted: as declared, "exact", "crop", "corner", "tight", "even".
        grey: "", "luma" or "mean".
        order: "rgb", "bgr" (before the normalization) or "late" (after it).
        scale: What a level is divided by.
        mean: Of each channel, on levels divided.
        std: Likewise.
        at_size: The user's photos have the model's size already.
        files: The user's photos: "png", "jpeg", or "turned" (JPEG with an EXIF orientation).
        decode: A file to a picture.
    """

    name: str
    words: str
    declared: str = "exact"
    resize: _Resize = _BILINEAR
    fit: str = ""
    grey: str = ""
    order: str = "rgb"
    scale: float = 255.0
    mean: _Channels = _MEAN
    std: _Channels = _STD
    at_size: bool = False
    files: str = "png"
    decode: Callable[[bytes], Image.Image] = opened

    def tensor(self, image: Image.Image) -> np.ndarray:
        """Float32 [1, 3, 64, 64] of a decoded picture."""
        levels = self._fitted(np.asarray(image, np.float64))
        if self.grey:
            weights = (0.299, 0.587, 0.114) if self.grey == "luma" else (1 / 3, 1 / 3, 1 / 3)
            levels = np.repeat((levels @ np.array(weights))[..., None], 3, -1)
            levels = np.rint(levels) if self.grey == "luma" else levels
        levels = levels[..., ::-1] if self.order == "bgr" else levels
        made = (levels / self.scale - np.array(self.mean)) / np.array(self.std)
        made = made[..., ::-1] if self.order == "late" else made
        return np.ascontiguousarray(made.transpose(2, 0, 1)[None]).astype(np.float32)

    def _fitted(self, levels: np.ndarray) -> np.ndarray:
        height, width = levels.shape[:2]
        fit = self.fit or self.declared
        if fit == "exact":
            return self._resized(levels, SIZE, SIZE)
        short = SIZE if fit == "tight" else 73
        if width <= height:
            height, width = short * height // width, short
        else:
            height, width = short, short * width // height
        levels = self._resized(levels, height, width)
        top, left = (height - SIZE) // 2, (width - SIZE) // 2
        if fit == "even":  # as torchvision rounds the half
            top, left = round((height - SIZE) / 2.0), round((width - SIZE) / 2.0)
        if fit == "corner":
            top = left = 0
        return levels[top : top + SIZE, left : left + SIZE]

    def _resized(self, levels: np.ndarray, height: int, width: int) -> np.ndarray:
        same = levels.shape[:2] == (height, width)
        return levels if same else self.resize(levels, height, width)


_SERVERS = (
    *(
        Server(f"filter {kind.name.lower()}", f"filter {kind.name.lower()}", resize=pillow(kind))
        for kind in Image.Resampling
        if kind.name in ("NEAREST", "BOX", "HAMMING", "BICUBIC", "LANCZOS")
    ),
    Server(
        "opencv linear",
        "without antialiasing",
        resize=interpolated("bilinear", antialias=False, bits=np.rint),
    ),
    Server(
        "torchvision bilinear without antialias",
        "bilinear without antialiasing",
        resize=interpolated("bilinear", antialias=False, bits=_as_is),
    ),
    Server(
        "opencv cubic",
        "bicubic without antialiasing",
        resize=interpolated("bicubic", antialias=False, bits=np.rint),
    ),
    Server("opencv area", "by area", resize=area),
    Server(
        "torch nearest",
        "upper left pixel",
        resize=interpolated("nearest", antialias=False, bits=_as_is),
    ),
    Server(
        "antialias at size",
        "bilinear without antialiasing",
        resize=interpolated("bilinear", antialias=False, bits=np.rint),
        at_size=True,
    ),
    Server(
        "filter at size", "filter bicubic", resize=pillow(Image.Resampling.BICUBIC), at_size=True
    ),
    Server("no crop", "whole picture", declared="crop", fit="exact"),
    Server("corner crop", "upper left", declared="crop", fit="corner"),
    Server("tight crop", "shorter side to 64", declared="crop", fit="tight"),
    Server("crop rounding", "rounding half-even", declared="crop", fit="even"),
    Server("crop for exact", "then a center crop", fit="tight"),
    Server("filter before a crop", "filter lanczos", "crop", pillow(Image.Resampling.LANCZOS)),
    Server("luma", "luma", grey="luma"),
    Server("mean grey", "mean of R, G and B", grey="mean"),
    Server("luma at size", "luma", grey="luma", at_size=True),
    Server("bgr", "BGR", order="bgr"),
    Server("bgr late", "BGR after the normalization", order="late"),
    Server("bgr at size", "BGR", order="bgr", at_size=True),
    Server("mean and std of 0 and 1", "0..1", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
    Server("mean and std of a half", "-1..1", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    Server("clip", "CLIP", mean=_CLIP[0], std=_CLIP[1]),
    Server("no std", "without its std", std=(1.0, 1.0, 1.0)),
    Server("no mean", "a mean of 0", mean=(0.0, 0.0, 0.0)),
    Server("no scale", "not scaled", scale=1.0, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
    Server("divided by 256", "divided by 256", scale=256.0),
    Server("mean at size", "-1..1", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), at_size=True),
    Server("mean and std reversed", "in the order BGR", mean=_MEAN[::-1], std=_STD[::-1]),
    Server(
        "cut off levels",
        "cut off instead of rounded",
        resize=interpolated("bilinear", antialias=True, bits=np.floor),
    ),
    Server("orientation ignored", "EXIF orientation ignored", files="turned"),
    Server("jpeg at half size", "JPEG decoded at 1/2", files="jpeg", decode=shrunk),
    Server("other jpeg decoder", "another decoder", files="jpeg", decode=repeated_chroma),
)
_TWO = (
    Server("bgr and bicubic", "several", resize=pillow(Image.Resampling.NEAREST), order="late"),
    Server("luma and 0..1", "several", grey="luma", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
    Server("crop and bgr", "several", declared="crop", fit="exact", order="late"),
    Server(
        "nearest and -1..1",
        "several",
        "exact",
        pillow(Image.Resampling.NEAREST),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
    ),
    Server("corner and mean", "several", declared="crop", fit="corner", mean=(0.0, 0.0, 0.0)),
)
RIGHT = Server("right", "")


def photos(folder: Path, at_size: bool, files: str = "png") -> None:
    """48 drawn pictures of many sizes, or of the model's; see `Server.files`."""
    orientation = Image.Exif()
    orientation[0x0112] = 6 if files == "turned" else 1
    options: dict[str, Any] = {} if files == "png" else {"exif": orientation, "quality": 95}
    ending = "png" if files == "png" else "jpg"
    draw = np.random.default_rng(5)
    folder.mkdir()
    for i in range(48):
        width, height = (SIZE, SIZE) if at_size else draw.integers(90, 260, 2)
        coarse = draw.integers(0, 256, (5, 5, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((int(width), int(height)), Image.Resampling.BICUBIC)
        noise = draw.normal(0, 18, (int(height), int(width), 3))
        levels = np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(levels).save(folder / f"{i:02d}.{ending}", **options)


def _processing(declared: str) -> dict[str, Any]:
    from edgeserve.processing.steps.normalize import normalize_from

    step = normalize_from(1 / 255, _MEAN, _STD)
    fit: list[dict[str, Any]] = [{"step": "resize/1", "height": SIZE, "width": SIZE}]
    if declared == "crop":
        fit = [
            {"step": "resize/1", "height": 73, "width": 73, "fit": "shortest-edge"},
            {"step": "center_crop/1", "height": SIZE, "width": SIZE},
        ]
    steps = [
        {"step": "decode/1"},
        *fit,
        {"step": "normalize/1", "scale": list(step.scale), "bias": list(step.bias)},
        {"step": "layout/1", "order": "CHW"},
    ]
    return {
        "inputs": [{"name": "pixels", "steps": steps}],
        "outputs": [
            {"step": "softmax/1", "output": "output"},
            {"step": "top_k/1", "output": "output"},
        ],
    }


@dataclass(frozen=True)
class Outcome:
    """What `convert` said of a server, and how its files held the golden cases."""

    server: Server
    finding: str
    kept: int
    proven: bool
    seconds: float

    @property
    def named(self) -> bool:
        """The finding names the fault."""
        return self.server.words in self.finding if self.server.words else not self.finding


def run(server: Server) -> Outcome:
    """Convert the network with this server as its reference."""
    net = Net().eval()

    def reference(raw: bytes) -> dict[str, Any]:
        with torch.inference_mode():
            scores = net(torch.from_numpy(server.tensor(server.decode(raw)))).softmax(-1)[0]
        top = sorted(zip(LABELS, scores.tolist(), strict=True), key=lambda pair: -pair[1])
        return {"label": top[0][0], "score": top[0][1], "top": top}

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        data, out = Path(scratch) / "data", Path(scratch) / "out"
        photos(data, server.at_size, server.files)
        workspace = api.convert(
            net,
            torch.zeros(1, 3, SIZE, SIZE),
            out=str(out),
            to=["onnx"],
            data=str(data),
            reference=reference,
            progress=False,
            processing=_processing(server.declared),
            task="image-classification",
            labels=LABELS,
        )
        answers = decode((out / "samples/answers.json").read_bytes(), Answers)
        kept = len(workspace.manifest.artifacts)
        proven = not kept or verify(out).verdict != "fail"
        finding = " | ".join(finding.message for finding in answers.findings)
    return Outcome(server, finding, kept, proven, time.monotonic() - began)


def servers() -> tuple[Server, ...]:
    """All with a fault: of one step, then of two."""
    return (*_SERVERS, *_TWO)


def main(names: Sequence[str]) -> int:
    """Run the named servers, or all; exit code 1 where a figure is not reached."""
    some = [s for s in (RIGHT, *servers()) if not names or s.name in names]
    outcomes = []
    for server in some:
        outcome = run(server)
        outcomes.append(outcome)
        mark = "named" if outcome.named else "NOT NAMED"
        proof = "" if outcome.proven else "  FAILS ITS PROOF"
        print(
            f"{mark:10} {server.name:40} {outcome.kept} kept{proof}  {outcome.finding}", flush=True
        )
    single = [o for o in outcomes if o.server in _SERVERS]
    named, unproven = sum(o.named for o in single), sum(not o.proven for o in outcomes)
    print(f"named {named} of {len(single)} single faults")
    print(f"{unproven} of {len(outcomes)} fail the proof")
    return int(bool(unproven) or named < 0.9 * len(single))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
