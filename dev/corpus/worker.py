"""A process that judges cases: names on stdin, one JSON line each on stdout, all else on stderr.

A case that takes the process down (a runtime may crash on a damaged file) loses one case only: the
runner notes it and starts another.
"""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what converters print
    import torch

    torch.set_num_threads(1)
    from dev.corpus.cases import case
    from dev.corpus.judging import run_case
    from dev.corpus.revision import judged_by

    judged_by()  # the code as it is now, which is what is imported
    for name in sys.stdin:
        started = time.perf_counter()
        line = run_case(case(name.strip()))
        line["wall_s"] = round(time.perf_counter() - started, 2)
        line["revision"] = judged_by()
        answers.write(json.dumps(line) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
