"""A process forks while a Wrapper is open: the child answers as the parent did, and ends.

Every child is a real one, of a program of its own, and ends as a program does: by leaving the
block, by closing, by exit alone, at the end of a process of `multiprocessing`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

BUNDLES = Path(__file__).parents[1] / "fixtures" / "bundles"
#: Seconds for a child, which needs less than one; without care it needs for ever.
LIMIT_S = 30

_PROGRAM = """
    import json, multiprocessing, os, sys, threading, time
    from edgeserve import Wrapper
    from edgeserve.errors import EdgeError

    bundle, case, format, limit = sys.argv[1:]
    case, limit = open(case, "rb").read(), float(limit)
    opened = Wrapper(bundle, format=format, threads=2)
    first = opened.predict(case)

    def check():
        found = [opened.predict(case)]
        ask = lambda: found.append(opened.predict(case))
        asking = [threading.Thread(target=ask) for _ in range(4)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert found == [first] * 5

    def block():
        with opened:
            check()

    def close_alone():
        opened.close()

    def close_after():
        check()
        opened.close()

    def nothing():
        pass

    def closed():
        opened.close()
        try:
            opened.predict(case)
        except EdgeError as error:
            assert error.code == "EDGE-WRAPPER-005"

    def grandchild():
        check()
        assert ended(check) == 7

    def ended(act):
        pid = os.fork()
        if pid == 0:
            act()
            sys.exit(7)
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return "hung"

    acts = (block, close_alone, close_after, check, nothing, closed, grandchild)
    found = {act.__name__: ended(act) for act in acts}
    process = multiprocessing.get_context("fork").Process(target=block)
    process.start()
    process.join(limit)
    found["multiprocessing"] = 7 if process.exitcode == 0 else process.exitcode
    assert opened.predict(case) == first
    opened.close()
    print(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("format", ["onnx", "tflite"])
def test_a_child_answers_and_ends(format: str, tmp_path: Path) -> None:
    bundle = next(BUNDLES.rglob("image-classification.edge"))
    with zipfile.ZipFile(bundle) as archive:
        case = json.loads(archive.read("manifest.json"))["golden"]["cases"][0]["input"]["path"]
        (tmp_path / "case").write_bytes(archive.read(case))
    program = textwrap.dedent(_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-c", program, bundle, tmp_path / "case", format, str(LIMIT_S)],
        capture_output=True,
        text=True,
        check=False,
        timeout=8 * LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 8
    assert set(found.values()) == {7}, (found, done.stderr)
