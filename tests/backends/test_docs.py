"""The tutorial docs/tutorials/add-a-format.md runs, and its backend keeps the whole contract."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorials" / "add-a-format.md"


def test_the_example_backend_keeps_the_contract(tmp_path: Path) -> None:
    blocks = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert sorted(blocks) == ["linear_backend.py", "test_linear_backend.py"]
    for name, text in blocks.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "test_linear_backend.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])  # type: ignore[index]
    assert passed >= 35
    assert "skipped" not in done.stdout


def test_the_entry_points_on_the_page_are_those_of_packages() -> None:
    """The first names the example's class, the second is what the plugin itself declares."""
    first, second = (
        tomllib.loads(block)["project"]["entry-points"]["edgeserve.backends"]
        for block in re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    )
    module, _, name = first["linear"].partition(":")
    assert f"# {module}.py" in PAGE.read_text()
    assert f"class {name}(Backend)" in PAGE.read_text()
    plugin = tomllib.loads((ROOT / "tests" / "plugins" / "openvino" / "pyproject.toml").read_text())
    assert plugin["project"]["entry-points"]["edgeserve.backends"] == second
