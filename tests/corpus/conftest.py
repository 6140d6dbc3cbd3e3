"""The corpus lies beside the packages: its folder is found here; what it makes goes elsewhere."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
if _ROOT not in sys.path:
    sys.path.append(_ROOT)

# Read when corpus.places is imported, which is after this.
os.environ.setdefault("CORPUS_OUT", tempfile.mkdtemp(prefix="corpus-"))
os.environ.setdefault("CORPUS_DATA", "700")
os.environ.setdefault("CORPUS_TRAIN", "0.5")
