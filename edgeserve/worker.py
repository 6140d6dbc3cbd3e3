"""The worker process, ``python -P -m edgeserve.worker job.json``: see `edgeserve.jobs.run`."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from edgeserve.errors import EdgeError, WorkerError
from edgeserve.files import write_atomic
from edgeserve.jobs import Job
from edgeserve.types.base import decode, encode

__all__ = ["main"]


def _verb(dotted: str) -> Callable[[Any], Any]:
    """Look up a verb; only edgeserve's own modules hold verbs."""
    module, _, name = dotted.partition(":")
    if not module.startswith("edgeserve."):
        raise WorkerError(
            "EDGE-WORKER-004", dotted, wanted="a verb of edgeserve", got="another module",
            hint="jobs are written by edgeserve.jobs.run, not by hand",
        )  # fmt: skip
    found: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    return found


def _run(job: Job) -> bytes:
    sys.path.extend(job.path)
    verb = _verb(job.verb)
    hints = get_type_hints(verb)
    request = next(t for name, t in hints.items() if name != "return")
    return encode(verb(decode(bytes(job.request), request)))


def main(argv: list[str]) -> int:
    """Run the job described in ``argv[1]``; write result.json or error.json beside it."""
    folder = Path(argv[1]).resolve().parent
    try:
        answer = _run(msgspec.json.decode(Path(argv[1]).read_bytes(), type=Job))
    except EdgeError as error:
        traceback.print_exc()
        write_atomic(folder / "error.json", encode(error.fields()))
        return 1
    except Exception as error:  # the border to third-party code: everything becomes a coded error
        traceback.print_exc()
        wrapped = WorkerError(
            "EDGE-WORKER-001", type(error).__name__, got=str(error) or "no message",
            hint=f"the whole trace is in {folder / 'log.txt'}",
        )  # fmt: skip
        write_atomic(folder / "error.json", encode(wrapped.fields()))
        return 1
    write_atomic(folder / "result.json", answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
