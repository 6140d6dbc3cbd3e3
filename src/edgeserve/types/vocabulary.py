"""Words that must not blur: formats, precisions, tasks and verdicts.

Tasks and verdicts are closed sets. Formats and precisions are open: an installed package may add
a format, and a newer edgeserve may know more of both, so any well-formed word can be read. Which
formats work here is for `edgeserve.backends` to say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgspec

from edgeserve.tasks import REGISTRY

#: No hyphen: ``{format}-{precision}`` names an artifact and has to come apart again. The group
#: before the end is for Python, whose ``$`` also matches before a last line break.
_WORD = r"^[a-z][a-z0-9_]{0,31}(?!\n)$"

Format = Annotated[str, msgspec.Meta(pattern=_WORD, examples=["onnx", "tflite", "coreml"])]
Precision = Annotated[str, msgspec.Meta(pattern=_WORD, examples=["fp32", "fp16", "w8", "w8a8"])]
Verdict = Literal["pass", "degraded", "fail", "unproven"]
Target = Literal["android", "ios", "linux", "web"]

#: The reference's own format (the exported ``.pt2``); it never enters a bundle.
REFERENCE_FORMAT = "torch"
#: Precisions that this version understands, from the widest; a backend may make others.
PRECISIONS: tuple[str, ...] = ("fp32", "fp16", "w8", "w8a8", "w8a16", "w4")
#: Platforms that a bundle can be made for.
TARGETS: tuple[Target, ...] = get_args(Target)
#: Those with decisions have a folder each; of "tensors" the outputs are compared as they are.
TASKS: tuple[str, ...] = (*REGISTRY, "tensors")
VERDICTS: tuple[str, ...] = get_args(Verdict)

if TYPE_CHECKING:
    Task = str
else:
    Task = Literal[TASKS]


def check_word(field: str, word: str) -> None:
    """Raise ValueError unless ``word`` is well formed as a format or precision."""
    if not re.search(_WORD, word):
        raise ValueError(
            f"{field} {word!r}: wanted up to 32 lower-case letters, digits and underscores, "
            "a letter first"
        )
