"""Draw the growth curves, where matplotlib is installed (the extra `bench`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(curves: dict[str, Any], folder: Path) -> list[Path]:
    """Write one SVG per curve; none, with a sentence, where matplotlib is absent."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  # an optional library
    except ImportError:
        print('no plots: matplotlib is not installed; pip install "wick-graph[bench]"')
        return []
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # after the choice of its backend

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for key, label, log in (("cpu_ms", "CPU ms of a turn", False), ("bytes", "bytes", True)):
        figure, axes = plt.subplots(figsize=(7, 4))
        for name, points in curves[key].items():
            axes.plot(*zip(*points, strict=True), label=name)
        axes.set_xlabel("turns so far")
        axes.set_ylabel(label)
        if log:
            axes.set_yscale("log")
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        figure.tight_layout()
        written.append(folder / f"growth-{key.replace('_', '-')}.svg")
        figure.savefig(written[-1], metadata={"Date": None})
        plt.close(figure)
    return written
