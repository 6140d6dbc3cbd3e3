"""Words that must not blur: formats, precisions, tasks and verdicts.

Tasks and verdicts are closed sets. Formats and precisions are open: an installed package may add
a format, and a newer edgeserve may know more of both, so any well-formed word can be read. Which
formats work here is for `edgeserve.backends` to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgspec

from edgeserve.tasks import REGISTRY
from edgeserve.types.base import WORD

Format = Annotated[str, msgspec.Meta(pattern=WORD, examples=["onnx", "tflite", "coreml"])]
Precision = Annotated[str, msgspec.Meta(pattern=WORD, examples=["fp32", "fp16", "w8", "w8a8"])]
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
