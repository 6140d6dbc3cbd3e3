"""One picture: each kind's artifacts at their measured harm, coloured by verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.corpus.scoring import BAD, FAIL, GOOD, PASS, class_of

Line = dict[str, Any]
_COLORS = {
    "pass": "#1a7f37",
    "degraded": "#bf8700",
    "unproven": "#6e7781",
    "fail": "#cf222e",
    "refused": "#8250df",
    "crash": "#8250df",
}


def draw(lines: Sequence[Line], path: Path) -> None:
    """Write the SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    shown = [line for line in lines if class_of(line) != "void"]
    kinds = sorted({line["kind"] for line in shown}, key=lambda k: (k != "honest", k))
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.21 * len(kinds)))
    for verdict, color in _COLORS.items():
        held = [line for line in shown if line["verdict"] == verdict]
        if not held:
            continue
        x = [max(line["harm"]["share"], 4e-4) for line in held]
        below = [
            max(0.0, a - max(line["harm"]["lower"], 2e-4)) for a, line in zip(x, held, strict=True)
        ]
        above = [max(0.0, line["harm"]["upper"] - a) for a, line in zip(x, held, strict=True)]
        y = [kinds.index(line["kind"]) for line in held]
        axes.errorbar(
            x,
            y,
            xerr=[below, above],
            fmt="o",
            ms=3,
            lw=0.4,
            alpha=0.6,
            color=color,
            label=f"{verdict} ({len(held)})",
        )
    for edge, word in ((GOOD, "good"), (PASS, "2 %"), (FAIL, "8 %"), (BAD, "bad")):
        axes.axvline(edge, color="#57606a", lw=0.6, ls=":")
        axes.text(edge, -1.1, word, fontsize=6, ha="center")
    axes.set_xscale("log")
    axes.set_xlim(3e-4, 1.3)
    axes.set_ylim(len(kinds), -1.8)
    axes.set_yticks(range(len(kinds)), kinds, fontsize=6)
    axes.set_xlabel("decided flips, measured by the oracle, with 95 % bounds (left edge: none)")
    axes.legend(fontsize=6, loc="lower center", ncols=6, bbox_to_anchor=(0.5, 1.0))
    figure.tight_layout()
    matplotlib.rcParams["svg.hashsalt"] = "corpus"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))
