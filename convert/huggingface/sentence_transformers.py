"""What sentence-transformers puts around a network: pooling, normalisation, lengths, prompts.

Its steps are read as data, from the files that its versions 1 to 6 write, and carried over where
the vocabulary of `edgeserve.types.processing` says the same; anything else is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast, get_args

from edgeserve.convert.huggingface.folder import MODULES, ModelFolder, named_folder, read_json
from edgeserve.errors import ConvertError
from edgeserve.processing.steps.pool import PoolMode

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
