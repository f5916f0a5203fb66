"""Recall: questions that come back."""

from proofbook.runners.system.kinds import Kind, PageKind

KIND = Kind(
    pages={"recall": PageKind(".pages:recall", 0.1, is_timed=False)},
    scripts={"proofbook": "Sitting", "recall": "Sitting"},
    styles={"recall": "Sitting"},
    spoken={"recall": "recall"},
)
