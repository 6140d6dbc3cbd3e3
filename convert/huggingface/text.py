"""A network of one text: its inputs, lengths and masks, and what stands around it.

That is what sentence-transformers puts around a network: pooling, normalisation, lengths, prompts.
Its steps are read as data, from the files that its versions 1 to 6 write, and carried over where
the vocabulary of `edgeserve.types.processing` says the same; anything else is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, get_args

from edgeserve.convert.huggingface.folder import MODULES, ModelFolder, named_folder, read_json
from edgeserve.convert.huggingface.model import NetworkPlan, answer_with, labels_of, load_model
from edgeserve.convert.huggingface.tokenizer import (
    ASSET,
    load_tokenizer,
    out_of_table_note,
    read_tokenizer,
    tokenizer_steps,
)
from edgeserve.convert.options import FactoryOptions
from edgeserve.convert.torch_source import SourceModule
from edgeserve.errors import ConvertError
from edgeserve.processing.steps.l2_normalize import L2Normalize
from edgeserve.processing.steps.pool import Pool, PoolMode
from edgeserve.processing.steps.softmax import Softmax
from edgeserve.processing.steps.top_k import TopK
from edgeserve.types.processing import Processing
from edgeserve.types.steps import OutputStep

if TYPE_CHECKING:
    import torch


_MODES = {"cls": "cls", "max": "max", "mean": "mean", "lasttoken": "last"}
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
#: Names that its versions gave to the settings of the network's own step.
_SETTINGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
#: Settings of that step that change what it computes, when they say something.
_CHANGING = tuple(
    (
        "processing_kwargs query_length document_length query_expansion model_args model_kwargs "
        "config_args config_kwargs tokenizer_args processor_kwargs tokenizer_name_or_path"
    ).split()
)


@dataclass(frozen=True)
class SentencePooling:
    """How a text becomes one vector.

    Attributes:
        pool: How the tokens' vectors become one.
        normalize: Whether it is divided by its length.
        max_length: Longest row of tokens; None: as the tokenizer and network say.
        lower: Texts are lower-cased first.
        notes: What a caller should know.
    """

    pool: PoolMode = "mean"
    normalize: bool = False
    max_length: int | None = None
    lower: bool = False
    notes: tuple[str, ...] = ()


def read_sentence_pooling(folder: ModelFolder) -> SentencePooling:
    """Read the steps around a network that makes one vector of a text.

    A folder without any gets what sentence-transformers gives it: the mean over the tokens.

    Raises:
        ConvertError: EDGE-CONVERT-071, naming the step or setting that cannot be carried over.
    """
    steps = folder.modules
    if not steps:
        return SentencePooling(notes=("no pooling declared: the mean over the tokens is taken",))
    kinds = [str(step.get("type", "")).rpartition(".")[2] for step in steps]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise _unsupported_module(
            MODULES, "Transformer, Pooling and at most Normalize", ", ".join(kinds)
        )
    settings = _settings(folder)
    return SentencePooling(
        pool=_pool(folder, str(steps[1].get("path", ""))),
        normalize=len(kinds) == 3,
        max_length=_length(settings),
        lower=bool(settings.get("do_lower_case")),
        notes=_prompts(folder),
    )


def _settings(folder: ModelFolder) -> dict[str, Any]:
    for name in _SETTINGS:
        if found := folder.optional(name):
            if found.get("transformer_task", "feature-extraction") != "feature-extraction":
                got = str(found["transformer_task"])
                raise _unsupported_module(f"{name}: 'transformer_task'", "feature-extraction", got)
            for key in _CHANGING:
                if found.get(key):
                    raise _unsupported_module(f"{name}: {key!r}", "nothing there", str(found[key]))
            return found
    return {}


def _length(settings: dict[str, Any]) -> int | None:
    value = settings.get("max_seq_length")
    if value is not None and (not isinstance(value, int) or value < 1):
        raise _unsupported_module("max_seq_length", "a positive number", repr(value))
    return value


def _pool(folder: ModelFolder, path: str) -> PoolMode:
    config = read_json(named_folder(folder.root, path) / "config.json")
    thing = f"{path}/config.json"
    given = config.get(
        "pooling_mode", [mode for key, mode in _OLD_MODES.items() if config.get(key)]
    )
    modes = [given] if isinstance(given, str) else list(given or ["mean"])
    if len(modes) != 1 or modes[0] not in _MODES:
        raise _unsupported_module(
            f"{thing}: pooling", f"one of {', '.join(_MODES)}", " + ".join(map(str, modes))
        )
    if not config.get("include_prompt", True):
        raise _unsupported_module(f"{thing}: 'include_prompt'", "true", "false")
    mode = _MODES[modes[0]]
    assert mode in get_args(PoolMode)
    return cast("PoolMode", mode)


def _prompts(folder: ModelFolder) -> tuple[str, ...]:
    """Texts that are to stand before a text: none in silence, named ones are the caller's."""
    path = folder.root / "config_sentence_transformers.json"
    config = read_json(path) if path.exists() else {}
    prompts = {name: text for name, text in (config.get("prompts") or {}).items() if text}
    default = config.get("default_prompt_name")
    if default is not None and prompts.get(default):
        where = f"{path.name}: 'default_prompt_name'"
        wanted = "texts embedded as they are"
        got = f"{prompts[default]!r} put before each text"
        hint = "set it to null there, and have your app put that prompt before each text"
        raise ConvertError("EDGE-CONVERT-071", where, wanted=wanted, got=got, hint=hint)
    shown = ", ".join(f"{name} {text!r}" for name, text in sorted(prompts.items()))
    return (f"prompts are the caller's to put before a text: {shown}",) if prompts else ()


def _unsupported_module(thing: str, wanted: str, got: str) -> ConvertError:
    hint = "write a factory whose module does that step itself, and returns the vector"
    return ConvertError("EDGE-CONVERT-071", thing, wanted=wanted, got=got, hint=hint)


_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_BATCH = 64
#: Longest row of a network that has no limit of its own.
_DEFAULT_LENGTH = 512
#: Settings of networks that look at a part of the text only, by place: their masks are their own.
_WINDOWED_ATTENTION = tuple(
    "sliding_window local_attention attention_window layer_types attn_layers".split()
)
_EXAMPLES = ("a short example", "another one, which is a little longer than the first")

Tensors = dict[str, "torch.Tensor"]


def load_text_model(folder: ModelFolder, planned: NetworkPlan) -> SourceModule:
    """Load a network of one text with its tokenizer.

    Raises:
        ConvertError: EDGE-CONVERT-061 to -071.
    """
    embeds = planned.task == "feature-extraction"
    sentence = read_sentence_pooling(folder) if embeds else SentencePooling()
    tokenizer = load_tokenizer(folder, sentence.lower)
    model, notes = load_model(folder, planned)
    names = _names(model, tokenizer)
    longest = _max_length(model, tokenizer, names, sentence.max_length)
    asset = read_tokenizer(folder, tokenizer)
    examples = _examples(tokenizer, names, longest)
    output = _wrap(model, examples, planned.task)
    shortest = min(max(1, tokenizer.num_special_tokens_to_add()), longest)
    sequence = ("sequence", shortest, longest)
    options = FactoryOptions(
        dynamic_shapes={name: {0: ("batch", 1, _BATCH), 1: sequence} for name in names},
        input_names=names,
        task=planned.task,
        processing=Processing(
            inputs=tokenizer_steps(asset, tokenizer, names, longest),
            outputs=_outputs(planned, sentence, output, names),
        ),
        labels=labels_of(model.config) if planned.task == "text-classification" else (),
        assets={ASSET: asset.data},
    )
    of_words = filter(None, [asset.note, out_of_table_note(folder, tokenizer)])
    every = (*planned.notes, *sentence.notes, *notes, *of_words)
    return SourceModule(model, examples, options, every, _probes(names, longest, model, shortest))


def _names(model: Any, tokenizer: Any) -> tuple[str, ...]:
    """The inputs that the tokenizer makes and forward takes, in forward's order."""
    takes = list(inspect.signature(model.forward).parameters)
    makes = set(tokenizer.model_input_names)
    return tuple(sorted(makes & set(takes) & set(_INPUTS), key=takes.index))


def _max_length(model: Any, tokenizer: Any, names: Sequence[str], declared: int | None) -> int:
    """Longest row: what is declared, the tokenizer's limit, and what the network really takes.

    Some networks number positions from the padding's id on, so that their tables are a little
    longer than the longest row: the row is tried.

    Raises:
        ConvertError: EDGE-CONVERT-067, it does not take what it says.
    """
    table = getattr(model.config, "max_position_embeddings", None)
    limits = [declared or tokenizer.model_max_length, table if isinstance(table, int) else None]
    known = [limit for limit in limits if limit and 0 < limit < 1 << 30]
    longest = min(known) if known else _DEFAULT_LENGTH
    shorter = longest - (model.config.pad_token_id or 0) - 1
    for length in (longest, shorter):
        if length > 0 and _accepts_length(model, names, length):
            return length
    wanted = f"an answer to {longest} tokens"
    got = "an error"
    hint = "correct max_position_embeddings in config.json"
    raise ConvertError("EDGE-CONVERT-067", type(model).__name__, wanted=wanted, got=got, hint=hint)


def _accepts_length(model: Any, names: Sequence[str], length: int) -> bool:
    import torch

    try:
        with torch.no_grad():
            model(**_random_rows(names, length, model))
    except (IndexError, RuntimeError):
        return False
    return True


def _random_rows(
    names: Sequence[str], length: int, model: Any, rows: int = 1, short: int = 0
) -> Tensors:
    """Random token ids, the last of several rows ``short`` tokens shorter than the others."""
    import torch

    generator = torch.Generator().manual_seed(length)
    size = (rows, length)
    ids = torch.randint(0, int(model.config.vocab_size), size, generator=generator)
    mask = torch.ones(size, dtype=torch.int64)
    if short:
        mask[-1, -short:] = 0
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return {name: given[name] for name in names}


def _examples(tokenizer: Any, names: Sequence[str], longest: int) -> Tensors:
    """Two texts of different length, as the tokenizer makes them."""
    import torch

    rows = [tokenizer(text, truncation=True, max_length=longest) for text in _EXAMPLES]
    size = max(len(row["input_ids"]) for row in rows)
    made = {}
    for name in names:
        pad = {"input_ids": tokenizer.pad_token_id or 0}.get(name, 0)
        made[name] = torch.tensor([row[name] + [pad] * (size - len(row[name])) for row in rows])
    return made


def _probes(
    names: Sequence[str], longest: int, model: Any, shortest: int
) -> tuple[list[torch.Tensor], ...]:
    """What the export is compared on besides its examples: the longest row, and a prime length."""
    prime = max(shortest, min(13, longest))
    rows = [
        _random_rows(names, longest, model),
        _random_rows(names, prime, model, rows=3, short=prime // 2),
    ]
    return tuple([row[name] for name in names] for row in rows)


def _wrap(model: Any, examples: Tensors, task: str) -> str:
    """Give the model a forward of its inputs only, which returns what the task needs.

    Returns:
        Name of the output that the task reads; empty for tensors.
    """
    simple = _simple_mask(model.forward, examples, model.config)
    output = {"feature-extraction": "last_hidden_state", "tensors": ""}.get(task, "logits")
    answer_with(model, examples, output, _with_4d_mask if simple else lambda tensors: tensors)
    return output


def _with_4d_mask(tensors: Tensors) -> Tensors:
    return tensors | {"attention_mask": tensors["attention_mask"].ne(0)[:, None, None, :]}


def _simple_mask(forward: Callable[..., Any], examples: Tensors, config: Any) -> bool:
    """Whether a mask of shape [batch, 1, 1, tokens] means the same to a network as [batch, tokens].

    transformers builds the former out of the latter by gathers over index grids, which end up in
    every format; where the network takes it ready-made, the graph is smaller and means the same.
    Networks that look at windows, and those that never look ahead, need their own.
    """
    import torch

    masked = config._attn_implementation == "sdpa" and "attention_mask" in examples
    if not masked or any(getattr(config, word, None) for word in _WINDOWED_ATTENTION):
        return False
    ready = _with_4d_mask(examples)
    with torch.no_grad():
        wanted = forward(**examples)[0]
        try:
            got = forward(**ready)[0]
        except Exception:  # a network that wants two dimensions says so in its own way
            return False
    return wanted.shape == got.shape and torch.allclose(wanted, got, rtol=0, atol=1e-5)


def _outputs(
    planned: NetworkPlan, sentence: SentencePooling, output: str, names: Sequence[str]
) -> tuple[OutputStep, ...]:
    if planned.task == "text-classification":
        return (Softmax(output=output), TopK(output=output))
    if planned.task != "feature-extraction":
        return ()
    if "attention_mask" not in names:
        wanted = "a network that takes an attention mask"
        got = f"one that takes {list(names)}"
        hint = "write a factory whose module pools the tokens itself"
        raise ConvertError("EDGE-CONVERT-071", "pooling", wanted=wanted, got=got, hint=hint)
    pool = Pool(output=output, mask="attention_mask", mode=sentence.pool)
    return (pool, L2Normalize(output=output)) if sentence.normalize else (pool,)
