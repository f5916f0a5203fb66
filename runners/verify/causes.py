"""The table of causes: what usually causes a finding, and which section explains it.

In: `causes.yml` beside this file. Out: a `Cause` by its key. No torch.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

_FILE = Path(__file__).with_name("causes.yml")
# How the table is divided, in its order: what a reader sees of gradients, updates and losses.
GROUPS = {
    "ranks": "A factor that is the number of ranks",
    "microbatches": "A factor that is the number of microbatches",
    "own": "The gradient of one rank, or a part",
    "zero": "Zero, or lost",
    "before": "Something of the update before",
    "module": "Everything behind one module",
    "norms": "Normalizations only",
    "experts": "Experts only",
    "others": "Data, weights, updates, and how the script ends",
}


class Cause(NamedTuple):
    """A row of the table."""

    title: str
    usually: str
    page: str
    section: str
    group: str


@cache
def table() -> dict[str, Cause]:
    """All causes by their key."""
    rows = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return {
        key: Cause(row["title"], row["usually"], **row["lesson"], group=row.get("group", "others"))
        for key, row in rows.items()
    }
