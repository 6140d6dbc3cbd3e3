"""How the process of an endpoint holds memory, so that a request does not wait for its pages."""

from __future__ import annotations

import ctypes
import gc
import platform

__all__ = ["keep", "settle"]

#: Of ``mallopt``: what lies free at the end of the heap before it is given back, and the length of
#: a block from which it is asked of the system alone; bytes.
_TRIM, _ALONE = (-1, 64 << 20), (-3, 16 << 20)


def keep() -> bool:
    """Keep some freed memory for the next request; whether the C library here knows how.

    A body, its numbers and the answer are megabytes that come and go with each request. By itself
    the C library gives them back each time, and the system hands them out again page by page, each
    zeroed: half of what a request of 588 KB costs.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(*option) == 1 for option in (_TRIM, _ALONE))


def settle() -> None:
    """Leave what was loaded out of later garbage collections: they hold the loop for 10 ms."""
    gc.collect()
    gc.freeze()
