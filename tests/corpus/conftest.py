"""Folders of the corpus in tests: what it makes goes to a temporary one."""

from __future__ import annotations

import os
import tempfile

# Read when dev.corpus.paths is imported, which is after this.
os.environ.setdefault("CORPUS_OUT", tempfile.mkdtemp(prefix="corpus-"))
os.environ.setdefault("CORPUS_DATA", "700")
os.environ.setdefault("CORPUS_TRAIN", "0.5")
