"""A Hugging Face model folder, checked before any library reads it; and its preprocessor.

Nothing of a folder is executed: configurations are JSON, weights are safetensors. Where a folder
asks for its own Python code, or has its weights in pickles (which can run code), it is refused.
The preprocessor is loaded by transformers, from files alone; settings that no step expresses are
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from edgeserve.convert.source import check_links, resolve_named_file
from edgeserve.errors import ConvertError
from edgeserve.processing import Processor, Raw
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.steps import InputStep
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.user_lines import one_line


def load_preprocessor(auto: Any, folder: Path, kind: str, **more: Any) -> Any:
    """Load it, from files alone and without running any code of the folder's.

    Args:
        auto: The class of transformers that knows its kind.
        folder: Where ``preprocessor_config.json`` lies.
        kind: What errors call it: "image processor".
        more: What else the class is told.

    Raises:
        ConvertError: EDGE-CONVERT-069.
    """
    wanted = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
    refuse = partial(unsupported_setting, kind, "preprocessor_config.json", wanted)
    return from_files(auto, folder, refuse, **more)


def from_files(auto: Any, folder: Path, refuse: Callable[[str], ConvertError], **more: Any) -> Any:
    """What a class of transformers makes of a folder's files, running no code of the folder's.

    Raises:
        ConvertError: what ``refuse`` makes of transformers' own words.
    """
    from edgeserve.backends.torch.program.io import log_warnings

    try:
        with log_warnings():
            return auto.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, **more
            )
    except Exception as error:  # transformers raises many kinds here
        raise refuse(one_line(error)) from error


def unsupported_setting(kind: str, setting: str, wanted: str, got: str) -> ConvertError:
    """The error for what no step expresses."""
    return ConvertError(
        "EDGE-CONVERT-069",
        f"{kind}: {setting}",
        wanted=wanted,
        got=got,
        hint="give the processing yourself in a factory (spec/processing.md), with your server as"
        " --reference",
    )


def steps_output(
    steps: tuple[InputStep, ...], name: str, shape: tuple[int | str, ...], raw: Raw
) -> np.ndarray:
    """What steps make of a raw input, for an input whose named sizes may be any."""
    spec = TensorSpec(name=name, dtype="float32", shape=("batch", *shape))
    dims = {dim: (1, 1 << 24) for dim in spec.shape if isinstance(dim, str)}
    processing = Processing(inputs=(InputProcessing(name=name, steps=steps),))
    signature = Signature(inputs=(spec,), outputs=(), dims=dims)
    made: np.ndarray = Processor(processing, signature, "tensors").prepare(raw)[name]
    return made


CONFIG = "config.json"
#: What sentence-transformers writes: the steps around the network, in order.
MODULES = "modules.json"

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
_LARGEST = 16 << 20  # bytes of a configuration

#: Keys of config.json that make the weights something else than they are said to be.
_UNSUPPORTED_KEYS = {
    "quantization_config": "a model quantized by another tool: give the one it was made from",
    "transformers_weights": "weights under another name: rename them model.safetensors",
}


class ModelFolder:
    """A model folder whose links and configurations have been checked.

    Attributes:
        root: Where it lies.
        config: What ``config.json`` of the network holds.
        network: The folder of the network itself: ``root``, or the one that an older
            sentence-transformers keeps beneath it.

    Args:
        root: An existing folder.

    Raises:
        ConvertError: EDGE-CONVERT-061 no whole model, -062 it asks for code of its own, -065 a link
            out of it.
    """

    def __init__(self, root: Path) -> None:
        check_links(root)
        self.root = root
        self.network = named_folder(root, self._network_path())
        self.config = read_json(self.network / CONFIG)
        self._check_code()
        if (self.network / "adapter_config.json").exists():
            got = "an adapter, which is a part of one"
            hint = "merge it into its base model (peft: merge_and_unload) and save that"
            raise _no_model("adapter_config.json", "a whole model", got, hint)
        for key, hint in _UNSUPPORTED_KEYS.items():
            if self.config.get(key):
                raise _no_model(f"{CONFIG}: {key!r}", "float weights", "another kind", hint)

    @property
    def modules(self) -> list[dict[str, Any]]:
        """The steps in ``modules.json``; empty where there is none."""
        path = self.root / MODULES
        if not path.exists():
            return []
        held = _parsed(path)
        if not isinstance(held, list) or not all(isinstance(step, dict) for step in held):
            raise _no_model(MODULES, "a list of modules", type(held).__name__, _HINT_DOWNLOAD)
        return held

    def optional(self, name: str) -> dict[str, Any]:
        """A configuration of the network; empty where there is none."""
        path = self.network / name
        return read_json(path) if path.exists() else {}

    def weights(self) -> list[Path]:
        """The files of the weights, their headers read by safetensors.

        Raises:
            ConvertError: EDGE-CONVERT-063 pickles only, -064 none, damaged or missing ones, -065 a
                name that leads out of the folder.
        """
        if (self.network / _WEIGHTS).exists():
            files = {_WEIGHTS: self.network / _WEIGHTS}
        elif (self.network / _INDEX).exists():
            files = self._shards()
        else:
            raise self._no_weights()
        held = {name: _keys(path) for name, path in files.items()}
        self._check_index(held)
        return list(files.values())

    def _shards(self) -> dict[str, Path]:
        names = sorted(set(map(str, self._index().values())))
        return {name: resolve_named_file(self.network, name, _INDEX) for name in names}

    def _index(self) -> dict[str, Any]:
        index = read_json(self.network / _INDEX)
        placed = index.get("weight_map")
        if not (placed and isinstance(placed, dict) and isinstance(index.get("metadata"), dict)):
            raise _bad_weights(_INDEX, "weight_map and metadata", "something else")
        return placed

    def _check_index(self, held: Mapping[str, set[str]]) -> None:
        """Every tensor lies where the index says."""
        if _WEIGHTS in held:
            return
        gone = sorted(key for key, file in self._index().items() if key not in held[file])
        if gone:
            raise _bad_weights(_INDEX, "tensors where it says they are", f"no {gone[0]!r} there")

    def _no_weights(self) -> ConvertError:
        there = sorted({path.name for glob in _PICKLES for path in self.network.glob(glob)})
        if not there:
            return _bad_weights(
                str(self.network), f"{_WEIGHTS} (or {_INDEX})", "no weights in this format"
            )
        return ConvertError(
            "EDGE-CONVERT-063",
            f"weights {there[0]!r}",
            wanted=_WEIGHTS,
            got="a pickle, which can run code of its author",
            hint="where you trust it, load it with transformers and save_pretrained() it: that"
            " writes safetensors",
        )

    def _network_path(self) -> str:
        """Where ``modules.json`` says that the network lies; "" is the folder itself."""
        if (self.root / CONFIG).exists():
            return ""
        paths = [str(step.get("path", "")) for step in self.modules]
        found = next((p for p in paths if p and (self.root / p / CONFIG).exists()), None)
        if found is None:
            raise _no_model(CONFIG, "the network's configuration", "none", _HINT_DOWNLOAD)
        return found

    def _check_code(self) -> None:
        """No configuration asks for Python code from the folder."""
        for path in sorted({*self.root.glob("*config*.json"), *self.network.glob("*config*.json")}):
            held = _parsed(path) if path.stat().st_size <= _LARGEST else None
            if isinstance(held, dict) and held.get("auto_map"):
                raise _code_error(f"{path.name}: 'auto_map'", str(held["auto_map"]))
        for step in self.modules:
            kind = str(step.get("type", ""))
            if not kind.startswith("sentence_transformers."):
                raise _code_error(f"{MODULES}: type", kind or "nothing")


def named_folder(root: Path, name: str) -> Path:
    """A folder that ``modules.json`` names, "" for the root.

    Raises:
        ConvertError: EDGE-CONVERT-065.
    """
    path = root / name
    leads_out = not path.resolve().is_relative_to(root.resolve())
    if name.startswith("/") or ".." in PurePosixPath(name).parts or leads_out:
        where = f"{MODULES}: {name!r}"
        wanted = "a folder of the model's own"
        got = "a path that leads elsewhere"
        hint = "download or copy the model again"
        raise ConvertError("EDGE-CONVERT-065", where, wanted=wanted, got=got, hint=hint)
    return path


def read_json(path: Path) -> dict[str, Any]:
    """A configuration: an object.

    Raises:
        ConvertError: EDGE-CONVERT-061.
    """
    held = _parsed(path)
    if not isinstance(held, dict):
        raise _no_model(path.name, "a JSON object", type(held).__name__, _HINT_DOWNLOAD)
    return held


def _parsed(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"{path.stat().st_size} bytes")
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        message = str(error).splitlines()[0]
        raise _no_model(path.name, "a configuration in JSON", message, _HINT_DOWNLOAD) from error


def _keys(path: Path) -> set[str]:
    """Names of the tensors in a file; opening it compares its header with its length."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as held:
            return set(held.keys())
    except (SafetensorError, OSError) as error:
        raise _bad_weights(path.name, "a whole safetensors file", str(error)) from error


def _bad_weights(thing: str, wanted: str, got: str) -> ConvertError:
    return ConvertError("EDGE-CONVERT-064", thing, wanted=wanted, got=got, hint=_HINT_DOWNLOAD)


def _code_error(thing: str, got: str) -> ConvertError:
    return ConvertError(
        "EDGE-CONVERT-062",
        thing,
        wanted="a model that transformers itself can build",
        got=f"code from the folder ({got})",
        hint="edgeserve has no --trust-remote-code: read that code, and if you trust it, write a"
        " factory that builds the module",
    )


_HINT_DOWNLOAD = "download or copy the model again, with all its files"


def _no_model(thing: str, wanted: str, got: str, hint: str) -> ConvertError:
    return ConvertError("EDGE-CONVERT-061", thing, wanted=wanted, got=got, hint=hint)
