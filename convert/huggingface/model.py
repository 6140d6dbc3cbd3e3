"""Which network a folder holds, what task it is for, its attention, and its weights loaded in full.

transformers implements a network's attention in several equivalent ways. Which of them a network
has, and which of them can be exported, only trying tells: they are tried in a fixed order.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from edgeserve.convert.huggingface.folder import ModelFolder, from_files
from edgeserve.convert.options import FactoryOptions
from edgeserve.convert.torch_source import SourceModule
from edgeserve.errors import ConvertError
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.top_k import TopK
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.steps import InputStep, OutputStep
from edgeserve.types.vocabulary import Task
from edgeserve.user_lines import one_line

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedModel


#: In this order: ``sdpa`` is one operation of PyTorch and makes the smaller graph, ``eager`` spells
#: it out; some networks have the second one only.
ATTENTIONS = ("sdpa", "eager")

#: Refusals of an export that another attention may get over.
_RETRIED_CODES = ("EDGE-CONVERT-013", "EDGE-CONVERT-014", "EDGE-CONVERT-015", "EDGE-CONVERT-017")

Shapes = Literal["auto", "dynamic"]
Result = TypeVar("Result")


def attention_kind(made: SourceModule) -> str:
    """How a loaded network computes attention; empty where it does not say."""
    word = getattr(getattr(made.module, "config", None), "_attn_implementation", None)
    return word if isinstance(word, str) else ""


def try_attentions(
    load: Callable[[Sequence[str]], SourceModule],
    export: Callable[[SourceModule, Shapes], Result],
    shapes: Shapes,
) -> Result:
    """Export by the first attention with which that works; the log tells how each of them went.

    All are tried with the sizes that may vary left open before any is tried with sizes fixed.

    Args:
        load: Loads the network with the first of these that it has.
        export: Exports it; with "auto" what cannot vary is fixed.
        shapes: "dynamic": nothing may be fixed.

    Raises:
        ConvertError: what the first one said, if none works.
    """
    first: ConvertError | None = None
    sizes: tuple[Shapes, ...] = ("dynamic",) if shapes == "dynamic" else ("dynamic", "auto")
    for wish in sizes:
        left: Sequence[str] = ATTENTIONS
        while left:
            made = load(left)
            used = attention_kind(made)
            try:
                result = export(_with_attention_note(made, used, first), wish)
            except ConvertError as error:
                if error.code not in _RETRIED_CODES:
                    raise
                print(f"attention {used!r} with {wish} sizes failed: {error}", flush=True)
                first = first or error
                left = left[left.index(used) + 1 :] if used in left else ()
                continue
            print(f"attention {used!r} with {wish} sizes worked", flush=True)
            return result
    assert first is not None  # there is at least one attention
    raise first


def _with_attention_note(made: SourceModule, used: str, first: ConvertError | None) -> SourceModule:
    """With a note where it is not the first choice."""
    if used not in ATTENTIONS[1:]:
        return made
    why = f"{first.code} {first.got}" if first else "the network has no other"
    note = f"attention is computed by {used!r}, not by {ATTENTIONS[0]!r}: {why}"
    return dataclasses.replace(made, notes=(*made.notes, note))


Medium = Literal["text", "image", "audio"]

_HEADS: dict[tuple[str, Medium], Task] = {
    ("ForImageClassification", "image"): "image-classification",
    ("ForSequenceClassification", "text"): "text-classification",
    ("ForSequenceClassification", "audio"): "audio-classification",
    ("ForAudioClassification", "audio"): "audio-classification",
}

#: What networks of sounds call their input: samples, or a spectrum.
_AUDIO_INPUTS = ("input_values", "input_features")


@dataclass(frozen=True)
class NetworkPlan:
    """What is made of a folder.

    Attributes:
        config: As transformers reads it.
        network: Its class: the whole of it, or the part without a head.
        task: What its outputs mean.
        medium: What it is made for.
        notes: What was decided on the way.
        attention: Ways of computing attention, in the order in which they are tried.
    """

    config: Any
    network: type[PreTrainedModel]
    task: Task
    medium: Medium
    notes: tuple[str, ...] = ()
    attention: tuple[str, ...] = ATTENTIONS


def plan_network(
    folder: ModelFolder, task: Task | None, attention: Sequence[str] = ATTENTIONS
) -> NetworkPlan:
    """Decide what a folder is, from its configuration alone.

    Raises:
        ConvertError: EDGE-CONVERT-067 transformers does not know it, -068 another task than it can
            do.
    """
    config = _config(folder)
    named = _architecture(folder, config)
    embeds = bool(folder.modules) or task == "feature-extraction"
    network = _base(config) if embeds else named
    medium = _medium(network)
    head = _head(named, config, medium)
    if task is None:
        base = embeds or named is _base(config)
        task = "feature-extraction" if base and medium == "text" else head.task or "tensors"
    _check_task(task, named, medium, head)
    if task != "feature-extraction":
        network = named
    notes = (head.why,) if head.why and task == "tensors" else ()
    return NetworkPlan(config, network, task, medium, notes, tuple(attention))


def _config(folder: ModelFolder) -> Any:
    from transformers import AutoConfig

    thing = f"config.json: model_type {folder.config.get('model_type', 'none')!r}"
    config = from_files(AutoConfig, folder.network, partial(_unknown, thing))
    parts: list[Any] = [config, getattr(config, "text_config", None)]
    for part in parts:
        if getattr(part, "use_cache", False):
            part.use_cache = False  # what a decoder remembers between calls is no output
    return config


def _architecture(folder: ModelFolder, config: Any) -> type[PreTrainedModel]:
    """The class that config.json names, else the network without a head."""
    import transformers

    names = config.architectures or []
    if not names:
        return _base(config)
    found = getattr(transformers, str(names[0]), None)
    if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
        if folder.modules:  # its steps need no more than the network without a head
            return _base(config)
        raise _unknown(f"config.json: architecture {names[0]!r}", "no class of that name")
    return found


def _base(config: Any) -> type[PreTrainedModel]:
    import transformers

    known: Any = transformers.MODEL_FOR_TEXT_ENCODING_MAPPING  # encoders without their decoders
    try:
        found: Any = known.get(type(config), None) or transformers.MODEL_MAPPING[type(config)]
    except KeyError as error:
        kind = f"config.json: model_type {config.model_type!r}"
        raise _unknown(kind, "no network without a head") from error
    network: type[PreTrainedModel] = found[0] if isinstance(found, tuple | list) else found
    return network


def _medium(network: type[PreTrainedModel]) -> Medium:
    takes = set(inspect.signature(network.forward).parameters)
    if network.main_input_name == "pixel_values" and "input_ids" not in takes:
        return "image"
    if network.main_input_name in _AUDIO_INPUTS and not takes & {"input_ids", "decoder_input_ids"}:
        return "audio"
    if "input_ids" in takes and not takes & {"pixel_values", "decoder_input_ids"}:
        return "text"
    where = f"architecture {network.__name__}"
    wanted = "a network of one text, one picture or one sound"
    got = f"one that takes {sorted(takes)[:8]}"
    hint = "write a factory that returns the module with example inputs (docs/guide/sources.md)"
    raise ConvertError("EDGE-CONVERT-068", where, wanted=wanted, got=got, hint=hint)


@dataclass(frozen=True)
class _TaskHead:
    """The task of a network's head; ``why`` says why a classifier makes no classification."""

    task: Task | None
    why: str = ""


def _head(network: type[PreTrainedModel], config: Any, medium: Medium) -> _TaskHead:
    heads = {word: task for (word, of), task in _HEADS.items() if of == medium}
    task = next((task for word, task in heads.items() if word in network.__name__), None)
    if task is None:
        return _TaskHead(None)
    kind = config.problem_type or "single_label_classification"
    if config.num_labels < 2 or kind != "single_label_classification":
        description = f"{config.num_labels} label" if config.num_labels < 2 else kind
        return _TaskHead(None, f"scores that are no single choice ({description}): task tensors")
    return _TaskHead(task)


def _check_task(task: Task, network: type[PreTrainedModel], medium: str, head: _TaskHead) -> None:
    possible: list[str] = [head.task] if head.task else []
    possible += ["feature-extraction"] if medium == "text" else []
    possible.append("tensors")
    if task not in possible:
        where = f"task {task!r} of {network.__name__}"
        wanted = f"one of {', '.join(possible)}"
        got = head.why or "a network without that head"
        hint = "leave --task out, or give a model that was trained for it"
        raise ConvertError("EDGE-CONVERT-068", where, wanted=wanted, got=got, hint=hint)


def labels_of(config: Any) -> tuple[str, ...]:
    """Class names by index.

    Raises:
        ConvertError: EDGE-CONVERT-061, they leave one out.
    """
    named = {int(index): str(name) for index, name in (config.id2label or {}).items()}
    if sorted(named) != list(range(config.num_labels)):
        where = "config.json: 'id2label'"
        wanted = f"a name for each of 0 to {config.num_labels - 1}"
        got = f"{sorted(named)[:9]}"
        hint = "number the classes in id2label without a gap"
        raise ConvertError("EDGE-CONVERT-061", where, wanted=wanted, got=got, hint=hint)
    return tuple(named[index] for index in sorted(named))


def load_model(
    folder: ModelFolder, planned: NetworkPlan
) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """Build the network and fill it with the folder's weights, all of them.

    A tensor that the folder lacks is filled with random numbers by transformers, with a warning at
    most: a head that answers at random. Here it is an error.

    Returns:
        The network in float32, and notes.

    Raises:
        ConvertError: EDGE-CONVERT-063 to -065 the files of the weights, -066 not the network's
            weights, -067 transformers cannot build it.
    """
    files = folder.weights()
    model, report = _loaded(folder, planned)
    lost = sorted(map(str, report["missing_keys"]))
    other = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if lost or other or report["error_msgs"]:
        problems = [f"{len(lost)} missing ({_abbreviated(lost)})"] if lost else []
        problems += [f"{len(other)} of another shape ({_abbreviated(other)})"] if other else []
        raise ConvertError(
            "EDGE-CONVERT-066",
            f"weights of {planned.network.__name__}",
            wanted="each of its tensors in the folder",
            got=", ".join([*problems, *map(str, report["error_msgs"])]),
            hint="give the folder that the trained model was saved to; for the network below a"
            " head, --task feature-extraction",
        )
    spare = sorted(map(str, report["unexpected_keys"]))
    notes = (
        [f"{len(spare)} tensors of the folder are not used: {_abbreviated(spare)}"] if spare else []
    )
    if low := _low_precision(files):
        notes.append(f"weights in {low}: exported in float32")
    return model, tuple(notes)


def _loaded(folder: ModelFolder, planned: NetworkPlan) -> tuple[PreTrainedModel, dict[str, Any]]:
    import torch
    from transformers.utils import logging

    from edgeserve.backends.torch.program.io import log_warnings

    options: dict[str, Any] = {}
    takes = inspect.signature(planned.network.__init__).parameters
    if planned.task == "feature-extraction" and "add_pooling_layer" in takes:
        options["add_pooling_layer"] = False  # the token vectors are pooled, not its answer
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    for kind in planned.attention:
        try:
            with log_warnings():
                return planned.network.from_pretrained(  # type: ignore[return-value]
                    folder.network,
                    config=planned.config,
                    attn_implementation=kind,
                    dtype=torch.float32,
                    local_files_only=True,
                    use_safetensors=True,
                    ignore_mismatched_sizes=True,
                    output_loading_info=True,
                    **options,
                )
        except Exception as error:  # transformers raises many kinds here
            if kind != planned.attention[-1] and _is_unsupported_attention(kind, error):
                print(f"attention {kind!r} failed: {one_line(error)}", flush=True)
                continue
            raise _unknown(planned.network.__name__, one_line(error)) from error
    raise AssertionError("there is no attention to try")


def _is_unsupported_attention(kind: str, error: Exception) -> bool:
    """Whether transformers says that a network, or this machine, has not this attention."""
    said, sdpa = str(error), "scaled_dot_product_attention"
    return "attn_implementation" in said or (kind == "sdpa" and sdpa in said)


def load_with_steps(
    folder: ModelFolder,
    planned: NetworkPlan,
    steps: tuple[InputStep, ...],
    axes: Callable[[Any], dict[int, Any]],
    example: np.ndarray,
) -> SourceModule:
    """Load a network of one picture or sound; ``axes`` tells its configuration's dynamic axes."""
    import torch

    name, classifies = planned.network.main_input_name, planned.task.endswith("-classification")
    model, notes = load_model(folder, planned)
    output = "logits" if classifies else ""
    answer_with(model, (name,), output)
    ends: tuple[OutputStep, ...] = (Softmax(output=output), TopK(output=output))
    inputs = (InputProcessing(name=name, steps=steps),)
    options = FactoryOptions(
        dynamic_shapes={name: axes(model.config)},
        input_names=(name,),
        task=planned.task,
        processing=Processing(inputs=inputs, outputs=ends if classifies else ()),
        labels=labels_of(model.config) if classifies else (),
    )
    examples = {name: torch.from_numpy(example)[None]}
    return SourceModule(model, examples, options, (*planned.notes, *notes))


def answer_with(
    model: Any, names: Iterable[str], output: str, change: Callable[[Any], Any] = lambda x: x
) -> None:
    """Give a network a forward of some inputs, which returns one output; empty: all of them."""
    original = model.forward

    def forward(**tensors: Any) -> Any:
        answer = original(**change(tensors), return_dict=True)
        return {output: answer[output]} if output else answer

    kinds = inspect.Parameter
    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [kinds(name, kinds.KEYWORD_ONLY) for name in names]
    )
    model.forward = forward


def _low_precision(files: Sequence[Any]) -> str:
    """A dtype below float32 that the weights have, if one has."""
    from safetensors import safe_open

    for path in files:
        with safe_open(path, "pt") as held:
            for key in held.keys():  # noqa: SIM118 - no mapping
                if (dtype := held.get_slice(key).get_dtype()) in ("F16", "BF16"):
                    return {"F16": "float16", "BF16": "bfloat16"}[dtype]
    return ""


def _abbreviated(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _unknown(thing: str, got: str) -> ConvertError:
    import transformers

    wanted = f"a network that transformers {transformers.__version__} builds"
    hint = "pip install -U transformers; else write a factory that builds the module"
    return ConvertError("EDGE-CONVERT-067", thing, wanted=wanted, got=got, hint=hint)
