"""What counts as trouble of the machine, in whatever way it is told."""

from __future__ import annotations

import errno
import os

import pytest

from edgeserve.errors import BackendError, BundleError, EdgeError, FilesError, WorkerError, revive
from edgeserve.machine import coded, machine_error

NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file")
DIED = "signal SIGABRT; it last said: terminate called, what(): std::bad_alloc"


def raised_from(cause: BaseException) -> BaseException:
    """As a backend wraps what its engine raises."""
    try:
        try:
            raise cause
        except BaseException as error:
            raise BackendError("EDGE-BACKEND-012", "model", got="no", hint="none") from error
    except BackendError as error:
        return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NO_SPACE, "No space left"),
        (MemoryError(), "Cannot allocate memory"),
        (KeyboardInterrupt(), "Interrupted"),
        (BlockingIOError(errno.EAGAIN, "fork"), "temporarily unavailable"),
        (raised_from(NO_SPACE), "No space left"),
        (raised_from(raised_from(MemoryError())), "Cannot allocate memory"),
        (raised_from(RuntimeError("open of weights: Too many open files")), "Too many open files"),
        (RuntimeError("CUDA failure 2: out of memory"), "Cannot allocate memory"),
        (WorkerError("EDGE-WORKER-002", "verb", got=DIED, hint="none"), "Cannot allocate memory"),
        (BundleError("EDGE-BUNDLE-060", "cache", got="[Errno 30]", hint="none"), "[Errno 30]"),
        (FilesError("EDGE-FILES-001", "file", got="No space left", hint="none"), "No space left"),
    ],
)
def test_the_machine_is_to_blame(error: BaseException, told: str) -> None:
    found = machine_error(error, "the thing")
    assert found is not None
    assert told in found.message
    assert found.hint
    again = machine_error(revive(found.fields()), "another process")
    assert again is not None
    assert again.fields() == found.fields(), "the code says so where there is no cause"


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file"),
        OSError("no number"),
        ValueError("a model"),
        raised_from(RuntimeError("Load model failed: Protobuf parsing failed.")),
        BackendError("EDGE-BACKEND-012", "m", got="a file called 'out of memory'", hint="none"),
        WorkerError("EDGE-WORKER-002", "verb", got="signal SIGSEGV", hint="none"),
        WorkerError("EDGE-WORKER-008", "verb", got="9000 MB", hint="none"),
    ],
)
def test_the_model_is_to_blame(error: BaseException) -> None:
    assert machine_error(error, "the thing") is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NO_SPACE, "EDGE-FILES-007"),
        (MemoryError(), "EDGE-FILES-007"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a"), "EDGE-FILES-002"),
        (OSError(), "EDGE-FILES-002"),
        (UnicodeError(), None),
    ],
)
def test_what_the_system_raises_in_a_block_gets_a_code(error: Exception, code: str | None) -> None:
    with pytest.raises(EdgeError if code else UnicodeError) as raised, coded("a bundle"):
        raise error
    assert code is None or getattr(raised.value, "code", "") == code
