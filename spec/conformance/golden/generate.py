"""Write the cases of comparing golden answers, or check that what lies here is what this writes.

    python spec/conformance/golden/generate.py --write | --check

Standard library only. What holds and what does not is written by hand beside each case; the
numbers follow from the formulas of ``spec/golden.md``, written anew over plain lists.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from goldencases.records import records  # noqa: E402
from goldencases.tensors import tensors  # noqa: E402


def main(arguments: list[str]) -> int:
    """``--write`` or ``--check``; exit code 1 when something differs."""
    files = {"records.json": records(), "tensors.json": tensors()}
    stale = []
    for name, cases in files.items():
        lines = ",\n".join(json.dumps(case, ensure_ascii=False, allow_nan=False) for case in cases)
        text = f'{{"format": 1, "cases": [\n{lines}\n]}}\n'
        path = HERE / name
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--write" in arguments:
                path.write_text(text, "utf-8")
    print(f"{len(stale)} of {len(files)} files differ", *stale)
    return 1 if stale and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
