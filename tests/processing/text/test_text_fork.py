"""What the library tokenizers does to a process that uses it: nothing that shows."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "spec" / "conformance" / "processing"

_QUIET = """
import os, sys
from pathlib import Path
from edgeserve.files import describe
from edgeserve.processing import Processor
from edgeserve.processing.steps.tokenize import Tokenize
from edgeserve.types.processing import InputProcessing, Processing
from edgeserve.types.tensors import Signature, TensorSpec
folder = Path(os.environ["CASES"])
step = Tokenize(tokenizer=describe(folder, "text/bpe.json"), part="ids", max_length=16)
assert "tokenizers" not in sys.modules
processor = Processor(
    Processing(inputs=(InputProcessing(name="x", steps=(step,)),)),
    Signature(inputs=(TensorSpec(name="x", dtype="int64", shape=("n", "t")),), outputs=(),
              dims={"n": (1, 8), "t": (1, 16)}),
    "tensors", assets=lambda path: (folder / path).read_bytes(),
)
first = processor.prepare("the cat")["x"].tolist()
child = os.fork()
if child == 0:
    os._exit(0 if processor.prepare("the cat")["x"].tolist() == first else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_tokenizes_without_a_word_on_the_terminal() -> None:
    """The library warns where its own threads were used before a fork: they are not used."""
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(_QUIET)],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"CASES": str(FOLDER)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
