"""Tries: what a reader's own runs measured, kept beside the book and never part of it. No torch.

In: a trace with one run, whose settings are the reader's. Out: `content/tries/`, which git ignores,
one file a try; the same try again writes over its file. Under `mkdocs serve` the pages read them.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from runners.traces.files import write
from runners.traces.machine import HOME
from runners.traces.records import Trace

# Elsewhere only for tests.
TRIES = Path(os.environ.get("PROOFBOOK_TRIES", HOME / "content" / "tries"))


def keep(trace: Trace) -> Path:
    """Write a try, under its experiment, its run, and a digest of what was set.

    Raises:
        OSError: the disk refused; nothing is left behind.
    """
    ((name, run),) = trace.runs.items()
    asked = [run.world_size, run.seed, run.budget_bytes, run.settings]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]
    path = TRIES / f"{trace.experiment}.{name}-{digest}.json"
    write(path, trace)
    return path
