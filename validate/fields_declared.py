"""Fields that an output step or the source's factory names."""

from __future__ import annotations

from collections.abc import Iterator

from edgeserve.types.processing import L2Normalize, OutputStep, Pool, Softmax
from edgeserve.types.readings import Depths, Detect, Frames, Picks, Segment, Slice, Spans
from edgeserve.types.source import Exported
from edgeserve.types.tensors import TensorSpec
from edgeserve.validate.fields import Field, Split, axes_of, narrowest

__all__ = ["declared"]


def declared(exported: Exported) -> dict[str, Split]:
    """Outputs whose fields are known without looking at a number, by name; steps come first."""
    specs = {spec.name: spec for spec in exported.signature.outputs}
    found: dict[str, Split] = {}
    for step in exported.processing.outputs:
        for name, split in _of_step(step, specs):
            found.setdefault(name, split)
    for name, word in exported.fields.items():
        if name in specs:
            found.setdefault(name, Split(narrowest(axes_of(specs[name])), (Field(word),)))
    return found


def _of_step(step: OutputStep, specs: dict[str, TensorSpec]) -> Iterator[tuple[str, Split]]:
    """What a step says of the outputs that it reads."""
    if isinstance(step, Detect):
        yield from _detector(step, specs)
    elif step.output in specs:
        spec = specs[step.output]
        field, axis = _field(step, spec)
        yield step.output, Split(_axis(spec, axis), (field,))


def _field(step: OutputStep, spec: TensorSpec) -> tuple[Field, int]:
    """The field that a step reads, and its axis, counted without the batch."""
    integers = not spec.dtype.startswith(("float", "bfloat"))
    if isinstance(step, Softmax):
        return Field("logits", softmax=True), step.axis
    if isinstance(step, Spans | Picks):
        return Field("logits", softmax=True), -1
    if isinstance(step, Segment):
        return (Field("mask"), 0) if integers else (_scored(step.activation), step.axis)
    if isinstance(step, Frames):
        return _scored(step.activation), -1
    if isinstance(step, Pool | L2Normalize):
        return Field("embedding"), -1
    return Field("values" if isinstance(step, Depths) else "scores"), -1


def _scored(activation: str) -> Field:
    if activation == "none":
        return Field("scores")
    return Field("logits", softmax=activation == "softmax")


def _axis(spec: TensorSpec, axis: int) -> int | None:
    """The axis with the batch counted; None where it holds no channels."""
    place = axis + 1 if axis >= 0 else len(spec.shape) + axis
    return place if place in axes_of(spec) else narrowest(axes_of(spec))


def _detector(step: Detect, specs: dict[str, TensorSpec]) -> Iterator[tuple[str, Split]]:
    """Boxes, scores and so on, each out of its output."""
    for name in step.outputs:
        slices = {word: each for word, each in step.slices.items() if each.output == name}
        spec = specs.get(name)
        if spec is None:
            continue
        places = {_axis(spec, each.axis) for each in slices.values()}
        axis = places.pop() if len(places) == 1 else None
        size = spec.shape[axis] if axis is not None else None
        if axis is None or not isinstance(size, int):
            word = next(iter(slices))
            yield name, Split(axis, (_named(word, step, None),))
        else:
            yield name, Split(axis, tuple(_parts(step, slices, size)))


def _parts(step: Detect, slices: dict[str, Slice], size: int) -> Iterator[Field]:
    """One field a slice, and one of the channels that no slice takes."""
    taken: set[int] = set()
    for word, each in slices.items():
        channels = tuple(c for c in range(size)[each.start : each.stop] if c not in taken)
        taken.update(channels)
        if channels:
            yield _named(word, step, channels if len(channels) < size else None)
    if rest := tuple(c for c in range(size) if c not in taken):
        yield Field("values", rest)


def _named(word: str, step: Detect, channels: tuple[int, ...] | None) -> Field:
    if word in ("scores", "objectness"):
        raw = step.activation != "none"
        softmax = word == "scores" and step.activation == "softmax"
        return Field("logits" if raw else "scores", channels, softmax)
    return Field(word, channels)
