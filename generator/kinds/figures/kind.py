"""Figures, drawn or operated."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(
    scripts={
        "sources": "PlayedFigure",
        "figures": "DrawnFigure",
        "player": "moments",
        "play": "PlayedFigure",
    },
    styles={"play": "state PlayedFigure"},
    spoken={"play": "playing"},
)
