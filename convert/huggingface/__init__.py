"""A Hugging Face model folder as a source: its network, its processing, its labels.

The folder is read from this disk only, nothing in it is executed, and what cannot be carried over
exactly is refused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgeserve.convert.huggingface.model import ATTENTIONS
from edgeserve.convert.source import check_packages
from edgeserve.convert.torch_source import SourceModule
from edgeserve.types.vocabulary import Task

__all__ = ["load_folder"]

#: Package and the module that it brings.
_NEEDED = {
    "torch": "torch",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
    "safetensors": "safetensors",
    "pillow": "PIL",
}


def load_folder(
    root: Path, task: Task | None = None, attention: Sequence[str] = ATTENTIONS
) -> SourceModule:
    """Load a model folder as a module with examples, dynamic shapes and processing.

    Args:
        root: A folder with ``config.json``, safetensors and the files of a tokenizer, an image
            processor or a feature extractor, also as sentence-transformers writes it.
        task: What to make of it; None: what its architecture says.
        attention: Ways of computing attention; the first that the network has is taken.

    Raises:
        ConvertError: EDGE-CONVERT-060 to -071; ``edgeserve explain`` tells more.
    """
    check_packages("a Hugging Face folder", _NEEDED)
    os.environ["HF_HUB_OFFLINE"] = "1"  # before anything of theirs is imported
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from edgeserve.convert.huggingface.audio import load_audio_model
    from edgeserve.convert.huggingface.folder import ModelFolder
    from edgeserve.convert.huggingface.image import load_image_model
    from edgeserve.convert.huggingface.model import plan_network
    from edgeserve.convert.huggingface.text import load_text_model

    folder = ModelFolder(root)
    planned = plan_network(folder, task, attention)
    loads = {"text": load_text_model, "image": load_image_model, "audio": load_audio_model}
    return loads[planned.medium](folder, planned)
