"""What the process of an endpoint does about memory: pages handed out, as the system counts."""

from __future__ import annotations

import platform
import subprocess
import sys

from edgeserve.serve.server import tune_malloc

#: What a request of some megabytes does, in a thread as in the loop's own.
REQUESTS = """
import resource, sys, threading
from edgeserve.serve.server import tune_malloc

if sys.argv[1] == "tuned":
    tune_malloc()

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def requests(found):
    for i in range(60):
        if i == 10:
            before = pages()
        body = bytearray(b"x" * (3 << 20))
        whole, numbers = bytes(body), bytearray(b"y" * (1 << 20))
        answer = b"".join([whole, numbers])
        del body, whole, numbers, answer
    found.append(pages() - before)

found = []
requests(found)
other = threading.Thread(target=requests, args=(found,))
other.start()
other.join()
print(max(found))
"""


def pages_of_fifty(how: str) -> int:
    command = [sys.executable, "-P", "-c", REQUESTS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_a_request_s_memory_is_the_last_one_s() -> None:
    """Without it a request of 3 MB has some 3,000 pages handed out; elsewhere it does nothing."""
    with_libc = platform.libc_ver()[0] == "glibc"
    assert tune_malloc() is with_libc
    if with_libc:
        assert pages_of_fifty("tuned") < 50 * 100
        assert pages_of_fifty("nothing") > 50 * 1000
