"""Which failures say nothing about an experiment, because the machine or a person caused them.

In: how the ranks of a pass ended, and what was declared. Out: the cause in one line, or None where
the end is evidence. Signals that a process raises against itself by a fault (SIGABRT, SIGSEGV, …)
are evidence; those that only another process or the kernel sends are not, unless the run declared
exactly this death. What fails before the strategy of the run is called, while ranks find each other
and warm up, is the same for all experiments and evidence of none. No torch.
"""

from __future__ import annotations

import errno
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runners.measuring.endings import NO_REPORT
from runners.plans.experiment import PassName, RunPlan
from runners.system.errors import FixableError
from runners.traces.outcome import RankOutcome
from runners.traces.records import Failure

OWN_FAULTS = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})
NO_SPACE = "no space left in {where}"
# What a failure says where the machine lacks something, and what to do about it.
LACKS = {
    "No space left on device|Disk quota exceeded": NO_SPACE,
    "Too many open files": "no file handles left: raise `ulimit -n`",
    "Unable to find interface|Unable to find address|Network is unreachable": (
        "ranks find no network interface: bring loopback up with `ip link set lo up`"
    ),
    "name resolution|Name or service not known|Address already in use|Cannot assign requested": (
        "ranks find no address: host names must resolve, and ports be free (`ss -tanp`)"
    ),
}
SEE = "; run again with PROOFBOOK_STDERR=1, which shows all that ranks say"
BEFORE_IT_BEGAN = ("start", "warm_up")
PROBE_BYTES = 1 << 20  # more than any record of a rank takes


class NotMeasuredError(FixableError, RuntimeError):
    """A run that failed for want of the machine; the message is the cause, one line."""

    exit_code = 1


class UnfinishedError(RuntimeError):
    """An experiment of which some runs could not be measured; `causes` says why, by name."""

    def __init__(self, causes: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {cause}" for name, cause in causes.items()))
        self.causes = causes


def lack(words: str, where: Path) -> str | None:
    """What the machine lacked where something failed, and what to do; None where nothing.

    Args:
        words: of the error.
        where: the folder it worked in.
    """
    found = (lacks for said, lacks in LACKS.items() if re.search(said, words))
    return next((lacks.format(where=where) for lacks in found), None)


def is_full(folder: Path) -> bool:
    """Whether a folder takes no further file of the size that ranks write."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def cause(
    plan: RunPlan,
    pass_name: PassName,
    outcomes: Sequence[RankOutcome],
    scratch: Path,
    *,
    is_limited: bool = False,
) -> str | None:
    """Why a pass that failed is no evidence; None where it is, and where nothing failed.

    Args:
        plan: the run as declared.
        pass_name: which pass.
        outcomes: one a rank.
        scratch: the folder in which the ranks wrote.
        is_limited: the ranks of this pass have a limit of memory although none was declared.
    """
    death = plan.expected_death
    failures = [one.failure for one in outcomes if one.failure is not None]
    unexpected = [one for one in failures if not (death and death.is_that_of(one))]
    if not unexpected:
        return None
    # Ranks write into a folder of their pass, in one of the launcher, in the temporary folder.
    temporary = scratch.parent.parent
    for one in unexpected:
        if lacking := lack(one.message, temporary):
            return f"{lacking}, and run again"
    if is_full(scratch):
        return NO_SPACE.format(where=temporary)
    budgeted = pass_name == "budgeted" or is_limited or plan.expected == "out_of_memory"
    found = (line for one in unexpected for line in _from_outside(one, has_budget=budgeted))
    return next(found, None)


def _from_outside(one: Failure, *, has_budget: bool) -> Iterator[str]:
    if one.signal is not None and one.signal not in OWN_FAULTS:
        yield (
            f"{one.message}, which this run did not declare: somebody's kill, or the kernel "
            "when memory ran out"
        )
    if one.exit_code == NO_REPORT:
        yield f"{one.message}: it could not report how it failed{SEE}"
    if one.kind == "out_of_memory" and not has_budget:
        yield f"not enough memory for rank {one.rank} in {one.phase}: {one.message}"
    if one.phase in BEFORE_IT_BEGAN and one.kind not in ("budget_too_small", "peer_lost"):
        yield (
            f"rank {one.rank} failed in {one.phase}, before its experiment began: "
            f"{one.message}{SEE}"
        )
