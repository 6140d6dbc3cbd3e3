"""convert --bisect, as a user types it: the finding is told, and the script lies in OUT."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NET = textwrap.dedent("""
    import torch

    def bend(x):
        y = x * 2
        return torch.special.bessel_j0(y)  # at fault

    class Bent(torch.nn.Module):
        def forward(self, x):
            return bend(x)

    def build():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(Bent()))
        return net.eval(), (torch.rand(1, 4),)
""")


@pytest.mark.slow
def test_the_smallest_part_is_told_and_its_script_fails(
    tmp_path: Path, edgeserve: Callable[..., Any]
) -> None:
    (tmp_path / "bent.py").write_text(NET)
    line = NET.splitlines().index("    return torch.special.bessel_j0(y)  # at fault") + 1
    done = edgeserve("convert", "bent:build", "-o", "out", "--bisect", "--json", cwd=tmp_path)
    assert done.code == 1, done.err
    (refused,) = done.json["refused"]
    assert refused["code"] == "EDGE-OP-001"
    assert "op aten.special_bessel_j0.default in 1.0: " in refused["message"]
    assert refused["message"].endswith(f" at bent.py:{line}")
    assert refused["repro"] == "failed/repro_onnx.py"
    assert "aten.special_bessel_j0.default in 1.0; repro_onnx.py fails in the same way" in done.err
    script = tmp_path / "out" / refused["repro"]
    ran = subprocess.run(
        [sys.executable, "-P", str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert "No ONNX function found for <OpOverload(op='prims.bessel_j0'" in ran.stderr
    again = edgeserve("convert", "bent:build", "-o", "out", "--json", cwd=tmp_path)
    assert again.json["refused"][0]["repro"] is None
    assert not script.exists(), "a script of an earlier run would be about another conversion"
