"""Strategies for every value, made from the types themselves.

A field's type says what to draw; only fields whose rules stand in code are described by hand here.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, Union

import msgspec
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from edgeserve.processing.steps.center_crop import CenterCrop
from edgeserve.processing.steps.decode import Decode
from edgeserve.processing.steps.log_mel import LogMel
from edgeserve.processing.steps.normalize import Normalize
from edgeserve.processing.steps.resize import Resize
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.processing.steps.top_k import TopK
from edgeserve.processing.steps.waveform import Waveform
from edgeserve.tasks.classification import Classification
from edgeserve.tasks.depth import Depth
from edgeserve.tasks.detection import Detect, Detection
from edgeserve.tasks.embedding import Embedding
from edgeserve.tasks.keypoints import COCO_SIGMAS, Heatmaps, Keypoints, Poses
from edgeserve.tasks.segmentation import Segmentation
from edgeserve.tasks.text_generation import Picks, Text
from edgeserve.tasks.voice_activity import Frames, Voice
from edgeserve.types.artifact import Artifact, ArtifactFunction, FileEntry
from edgeserve.types.base import UNSET, UnsetType, Value
from edgeserve.types.manifest import Function, Manifest, ModelState
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.profile import DeviceProfile, WorkloadProfile
from edgeserve.types.reports import Limits
from edgeserve.types.samples import GoldenField
from edgeserve.types.steps import Slice
from edgeserve.types.tensors import IO, ImageInput, Signature, StateTensors, TensorSpec

__all__ = ["values"]

#: Formats that this version has, and one that somebody else's package adds.
FORMATS = ("onnx", "tflite", "coreml", "openvino")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SHARE = st.floats(0.001, 0.999)
SHA = st.text("0123456789abcdef", min_size=64, max_size=64)
PART = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,6}(\.[a-z]{1,4})?", fullmatch=True)
PATH = st.lists(PART, min_size=1, max_size=3).map("/".join)
RGB = st.tuples(*[st.integers(0, 255)] * 3)
DIM = st.sampled_from(["batch", "n", "tokens_1"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
Fields = dict[str, st.SearchStrategy[Any]]
NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True).filter(lambda s: s != "main")
FEATURES = st.lists(st.sampled_from(["states", "tensor-layout", "a2"]), unique=True).map(tuple)


def arrays(dtype: type[np.generic], *shape: int | None) -> st.SearchStrategy[np.ndarray]:
    """Arrays of a dtype; None in the shape is any size from 1 on."""
    sizes = st.tuples(*(st.integers(1, 4) if size is None else st.just(size) for size in shape))
    elements = {"allow_nan": True, "allow_infinity": True} if dtype is np.float32 else None
    return sizes.flatmap(lambda drawn: nps.arrays(dtype, drawn, elements=elements))


@st.composite
def _artifact(draw: Callable[..., Any], format_: str | None = None) -> Artifact:
    kind = format_ or draw(st.sampled_from([*FORMATS, "torch"]))
    precision = draw(st.sampled_from(["fp32", "w8a8", "mixed"]))
    folder = f"artifacts/{kind}-{precision}"
    names = sorted(draw(st.sets(PATH, min_size=1, max_size=3)))
    files = [
        FileEntry(path=f"{folder}/m/{name}", size=draw(st.integers(0, 2**53 - 1)), sha256=draw(SHA))
        for name in names
    ]
    rest = {
        name: draw(of(hint))
        for name, hint in _hints(Artifact).items()
        if name in ("io", "provenance", "x")
    }
    functions = st.lists(of(ArtifactFunction), max_size=2, unique_by=lambda f: f.name).map(tuple)
    judgement = draw(of(typing.get_type_hints(Artifact)["judgement"]))
    return Artifact(
        format=kind,
        precision=precision,
        entry=f"{folder}/m",
        files=tuple(files),
        judgement=judgement,
        functions=draw(st.just(UNSET) | functions),
        plan=files[0] if precision == "mixed" else UNSET,
        requires=draw(st.just(UNSET) | FEATURES),
        **rest,
    )


@st.composite
def _signature(draw: Callable[..., Any]) -> Signature:
    inputs, outputs = draw(_specs()), draw(_specs())
    used = sorted({d for spec in (*inputs, *outputs) for d in spec.shape if isinstance(d, str)})
    low = {name: draw(st.integers(0, 9)) for name in used}
    dims = {name: (low[name], low[name] + draw(st.integers(0, 9))) for name in used}
    return Signature(inputs=inputs, outputs=outputs, dims=dims)


def _specs() -> st.SearchStrategy[tuple[TensorSpec, ...]]:
    return st.lists(of(TensorSpec), max_size=3, unique_by=lambda spec: spec.name).map(tuple)


@st.composite
def _io(draw: Callable[..., Any]) -> IO:
    inputs, outputs = draw(_specs()), draw(_specs())
    ranks = {spec.name: range(len(spec.shape)) for spec in (*outputs, *inputs)}
    turned = {name: tuple(draw(st.permutations(axes))) for name, axes in ranks.items()}
    images: dict[str, ImageInput] = {}
    if draw(st.booleans()):
        image = draw(of(ImageInput))
        shape = (1, 8, "n", len(image.scale))
        inputs = (*inputs, TensorSpec(name="an image", dtype="uint8", shape=shape))
        images["an image"] = image
    states = st.dictionaries(TEXT, of(StateTensors), max_size=2)
    return IO(
        inputs=inputs,
        outputs=outputs,
        signature=draw(st.none() | TEXT),
        layouts=draw(st.sampled_from([UNSET, turned])),
        images=images or UNSET,
        states=draw(st.just(UNSET) | states),
    )


@st.composite
def _image_input(draw: Callable[..., Any]) -> ImageInput:
    color = draw(st.sampled_from(["rgb", "bgr", "gray"]))
    numbers = st.tuples(*[FLOATS.filter(bool)] * (1 if color == "gray" else 3))
    return ImageInput(color=color, scale=draw(numbers), bias=draw(numbers))


@st.composite
def _state(draw: Callable[..., Any]) -> ModelState:
    spec = draw(of(TensorSpec))
    dims = {dim: (1, draw(st.integers(1, 9))) for dim in spec.shape if isinstance(dim, str)}
    return ModelState(name=spec.name, dtype=spec.dtype, shape=spec.shape, dims=dims)


def _state_tensors() -> st.SearchStrategy[StateTensors]:
    held = st.builds(StateTensors, held=TEXT)
    return held | st.builds(StateTensors, input=of(TensorSpec), output=of(TensorSpec))


@st.composite
def _normalize(draw: Callable[..., Any]) -> Normalize:
    count = draw(st.integers(1, 4))
    numbers = st.lists(FLOATS, min_size=count, max_size=count).map(tuple)
    return Normalize(scale=draw(numbers), bias=draw(numbers))


@st.composite
def _classification(draw: Callable[..., Any]) -> Classification:
    top = draw(st.lists(st.tuples(TEXT, FLOATS), max_size=4))
    indexes = draw(st.just(()) | st.just(tuple(range(len(top)))))
    return Classification(
        label=draw(TEXT),
        score=draw(FLOATS),
        top=tuple(top),
        index=draw(st.integers(-1, 9)),
        indexes=indexes,
    )


@st.composite
def _device(draw: Callable[..., Any]) -> DeviceProfile:
    hints = _hints(DeviceProfile)
    formats = tuple(draw(st.sets(st.sampled_from(FORMATS), min_size=1)))
    precisions = tuple(draw(st.sets(st.sampled_from(["fp32", "w8", "w4"]), min_size=1)))
    words = st.text("abc ", min_size=1).filter(str.strip)
    given = {
        "name": draw(st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)?", fullmatch=True)),
        "title": draw(words),
        "chip": draw(words),
        "source": draw(words),
        "cores": draw(st.integers(1, 99)),
        "memory_mb": draw(st.integers(1, 99)),
        "formats": formats,
        "precisions": precisions,
        "delegates": {f: tuple(draw(st.lists(TEXT, min_size=1, max_size=2))) for f in formats},
    }
    return DeviceProfile(**{n: given[n] if n in given else draw(of(h)) for n, h in hints.items()})


@st.composite
def _workload(draw: Callable[..., Any]) -> WorkloadProfile:
    share = st.floats(0.001, 0.4)
    low, more, small = draw(share), draw(share), st.floats(1e-6, 1e6)
    words = st.text("abc ", min_size=1).filter(str.strip)
    return WorkloadProfile(
        name=draw(st.from_regex(r"[a-z0-9]+", fullmatch=True)),
        title=draw(words),
        limits=Limits(
            tensor=draw(small), scale_floor=draw(small), pass_flips=low, degraded_flips=low + more
        ),
        deadline_ms=draw(st.none() | small),
        batch=tuple(draw(st.lists(st.integers(1, 64), min_size=1, max_size=3))),
        threads=draw(st.none() | st.integers(1, 64)),
        source=draw(words),
    )


@st.composite
def _detection(draw: Callable[..., Any]) -> Detection:
    count = draw(st.integers(0, 3))
    return Detection(
        boxes=draw(nps.arrays(np.float32, (count, 4))),
        scores=draw(nps.arrays(np.float32, count)),
        labels=tuple(draw(st.lists(TEXT, min_size=count, max_size=count))),
    )


@st.composite
def _keypoints(draw: Callable[..., Any]) -> Keypoints:
    poses, named = draw(st.integers(0, 3)), draw(st.none() | st.integers(1, 4))
    points = named or len(COCO_SIGMAS)
    return Keypoints(
        points=draw(nps.arrays(np.float32, (poses, points, 2))),
        point_scores=draw(nps.arrays(np.float32, (poses, points))),
        boxes=draw(nps.arrays(np.float32, (poses, 4))),
        scores=draw(nps.arrays(np.float32, poses)),
        labels=tuple(draw(st.just([]) | st.lists(TEXT, min_size=points, max_size=points))),
        sigmas=(0.05,) * named if named else (),
        floor=draw(st.none() | SHARE),
    )


@st.composite
def _segmentation(draw: Callable[..., Any]) -> Segmentation:
    mask = draw(arrays(np.int32, None, None))
    margin = draw(st.none() | nps.arrays(np.float32, mask.shape))
    return Segmentation(mask=mask, labels=tuple(draw(st.lists(TEXT))), margin=margin)


@st.composite
def _text(draw: Callable[..., Any]) -> Text:
    tokens = tuple(draw(st.lists(st.integers(0, 99), max_size=4)))
    margins = tuple(draw(st.lists(FLOATS, min_size=len(tokens), max_size=len(tokens))))
    unsure = draw(st.none() | st.lists(st.integers(0, len(tokens)), max_size=2).map(tuple))
    margins = draw(st.sampled_from([(), margins]))
    return Text(tokens=tokens, text=draw(TEXT), margins=margins, unsure=unsure)


#: Strategies of whole values whose fields depend on each other.
_WHOLE: dict[type, Callable[[], st.SearchStrategy[Any]]] = {
    Artifact: _artifact,
    Classification: _classification,
    DeviceProfile: _device,
    IO: _io,
    ImageInput: _image_input,
    ModelState: _state,
    StateTensors: _state_tensors,
    Detection: _detection,
    Keypoints: _keypoints,
    Normalize: _normalize,
    Segmentation: _segmentation,
    Signature: _signature,
    Text: _text,
    WorkloadProfile: _workload,
}

_SIDE = st.integers(1, 65_535)
_BANDS = st.integers(1, 65_536)

#: Fields whose rules their type does not say.
_FIELDS: dict[type, Fields] = {
    ArtifactFunction: {
        "name": NAME,
        "entry": st.none(),
        "buckets": st.just(()),
        "requires": FEATURES,
    },
    CenterCrop: {"height": _SIDE, "width": _SIDE},
    Decode: {"background": RGB, "max_pixels": st.integers(1, 2**40)},
    Depth: {"map": arrays(np.float32, None, None)},
    Detect: {"threshold": SHARE, "nms": st.none() | st.floats(0, 1), "most": st.integers(1, 999)},
    Embedding: {"vector": arrays(np.float32, None)},
    GoldenField: {
        "scale": st.floats(1e-6, 1e6),
        "axis": st.integers(0, 3),
        "runs": st.lists(st.sampled_from([(0, 4), (4, 5), (7, 90)]), max_size=2).map(tuple),
    },
    Frames: {"step_s": st.floats(1e-3, 9.0), "index": st.none() | st.integers(0, 9)},
    Function: {"name": NAME, "requires": FEATURES},
    Heatmaps: {"threshold": SHARE, "visible": SHARE},
    Poses: {
        "threshold": SHARE,
        "visible": SHARE,
        "nms": st.none() | st.floats(0, 1),
        "most": st.integers(1, 999),
    },
    FileEntry: {"path": PATH, "size": st.integers(0, 2**53 - 1), "sha256": SHA},
    LogMel: {
        "mels": _BANDS,
        "n_fft": st.integers(400, 65_536),
        "hop": _BANDS,
        "frame_length": st.none() | st.integers(2, 400),
        "frames": st.none() | _BANDS,
        "preemphasis": st.floats(0, 0.99),
        "floor": st.floats(1e-12, 1.0),
        "below_max": st.none() | st.floats(0.1, 99),
        "mean": st.floats(-9, 9),
        "std": st.floats(0.1, 9),
        "low": st.floats(0, 99),
        "high": st.none() | st.floats(100, 9999),
    },
    Manifest: {
        "version": st.integers(1, 2**40),
        "artifacts": st.deferred(lambda: _kept()),
        "functions": st.just(UNSET) | st.deferred(lambda: _named(Function)),
        "states": st.just(UNSET) | st.deferred(lambda: _named(ModelState)),
    },
    Picks: {"blank": st.none() | st.integers(0, 9)},
    Processing: {"inputs": st.deferred(lambda: _inputs())},
    Resize: {"height": _SIDE, "width": _SIDE, "fill": RGB},
    Slice: {"start": st.integers(0, 3), "stop": st.none() | st.integers(4, 9)},
    TensorSpec: {
        "name": TEXT.filter(bool),
        "shape": st.lists(st.integers(0, 2**40) | DIM, max_size=4).map(tuple),
    },
    Tokenize: {"max_length": st.integers(1, 2**31 - 1), "pad_id": st.integers(0, 2**31 - 1)},
    TopK: {"k": st.integers(1, 1000)},
    Voice: {"prob": arrays(np.float32, None)},
    Waveform: {
        "rate": st.integers(1000, 192_000),
        "length": st.none() | _SIDE,
        "max_length": _SIDE,
    },
}


def _kept() -> st.SearchStrategy[tuple[Artifact, ...]]:
    """Artifacts that a manifest may list."""
    verdicts = ("pass", "degraded", "unproven")
    one = st.sampled_from(FORMATS).flatmap(_artifact).filter(lambda a: a.verdict in verdicts)
    return st.lists(one, max_size=2, unique_by=lambda a: a.name).map(tuple)


def _named(kind: type) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of(kind), max_size=2, unique_by=lambda part: part.name).map(tuple)


def _inputs() -> st.SearchStrategy[tuple[InputProcessing, ...]]:
    return st.lists(of(InputProcessing), max_size=2, unique_by=lambda i: i.name).map(tuple)


def _hints(cls: type) -> dict[str, Any]:
    """Field name to type, in order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in msgspec.structs.fields(cls)}


@functools.cache
def values(cls: type[Value]) -> st.SearchStrategy[Any]:
    """Values of a type, every field drawn."""
    if cls in _WHOLE:
        return _WHOLE[cls]()
    given = _FIELDS.get(cls, {})
    return st.builds(cls, **{n: given[n] if n in given else of(h) for n, h in _hints(cls).items()})


@functools.cache  # a record is reached on many ways: without it their number is exponential
def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values that a type hint allows."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        (pattern,) = (meta.pattern for meta in args[1:] if isinstance(meta, msgspec.Meta))
        return st.from_regex(pattern).filter(lambda word: not word.endswith("\n"))
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of([of(arg) for arg in args])
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, args))
    if origin is dict:
        return st.dictionaries(of(args[0]), of(args[1]), max_size=3)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return st.deferred(lambda: values(hint))
    plain = {
        str: TEXT,
        int: st.integers(-(2**53), 2**53),
        float: FLOATS,
        bool: st.booleans(),
        type(None): st.none(),
        UnsetType: st.just(UNSET),
        Any: JSON,
    }
    return plain[hint]
