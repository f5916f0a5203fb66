"""What sets the traces of experiments without ranks apart (`runners/plain`). No torch.

Every record of circumstances has a version of torch; where none took part, it is `NO_TORCH`.
"""

from runners.core.trace.records import Circumstances, Machine, Run

PASS = "plain"  # the only pass of such a run
NO_TORCH = "0.0"


def is_plain(run: Run) -> bool:
    """Whether a run was a function of its settings, and had no ranks."""
    return run.passes == [PASS]


def software(under: Circumstances | Machine) -> str:
    """What measured, with its version: torch, or Python where torch took no part."""
    has_torch = under.torch != NO_TORCH
    return f"torch {under.torch}" if has_torch else f"Python {under.python}"
