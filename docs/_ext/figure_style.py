"""Style of the gallery's figures: legible on a phone, in colours that all can tell apart (Okabe and Ito)."""

from typing import Any

import matplotlib as mpl

COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000", "#999999"]
STYLE = {
    "axes.prop_cycle": mpl.cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.grid": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "font.size": 10,
    "image.cmap": "viridis",
    "legend.frameon": False,
    "lines.linewidth": 2,
    "savefig.dpi": 110,
}


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Before every script."""
    mpl.rcParams.update(STYLE)
