"""How a run ended, in words that a claim predicts: `completed`, `out of memory in forward`.

In: a run of a trace. Out: a text Value made of what the run recorded: its status, and where it did
not complete the phase and the cause of the error. What the experiment declared is not read. Running
out of memory is called so only where the recorded bytes explain the refusal: what was held lay
within the budget, and with what was requested it would not have.
"""

from __future__ import annotations

from generator.evidence import units
from generator.evidence.paths import Node
from generator.evidence.value import ExpressionError, Value, computed
from runners.traces.records import Failure, Run

WITH_RANK = "rank"
UNEXPLAINED = "not explained by the budget"
# An allocation of C++ code that finds the heap full raises `std::bad_alloc`, which names no size.
# Before that glibc tries to add a region of this size, so less than it was left.
HEAP_GROWTH_BYTES = 1 << 20
_CAUSES = {"timed_out": "a time-out", "peer_lost": "a lost peer", "exception": "an exception"}


def ended(run: object, detail: object = None) -> Value:
    """How a run ended, in words such as `out of memory in forward`.

    Args:
        run: a run, as `large_model.wide_ddp_budget`.
        detail: 'rank' adds which rank failed; only where no race between ranks decides it.

    Raises:
        ExpressionError: it is no run, or the detail is unknown.
        AbsentError: the run was skipped.
    """
    if not isinstance(run, Node) or not isinstance(run.thing, Run):
        raise ExpressionError("ended(…) takes a run, such as large_model.wide_ddp_budget")
    if detail not in (None, WITH_RANK):
        raise ExpressionError(f"ended(…) adds {WITH_RANK!r}, and not {detail!r}")
    run.refuse_if_skipped()
    recorded: list[object] = [run.step("status")]
    words = run.thing.status.replace("_", " ")
    error = run.thing.error
    if words != "completed" and error is not None:
        recorded += _read(run, error, with_rank=detail == WITH_RANK)
        words += _where(error, with_rank=detail == WITH_RANK) + _cause(run.thing, error)
    formula = f"ended({run.formula}{'' if detail is None else f', {detail!r}'})"
    inputs = tuple(one for one in recorded if isinstance(one, Value))
    return computed(words, units.TEXT, formula, inputs)


def _read(run: Node, error: Failure, *, with_rank: bool) -> list[object]:
    """The fields that decide the words, so that the verdict says what it rests on."""
    names = ["kind", "phase", "signal", "exit_code", *(["rank"] if with_rank else [])]
    if error.kind == "out_of_memory":
        names += ["held_bytes", "requested_bytes"]
    place = run.step("error")
    assert isinstance(place, Node)
    found: list[object] = [place.step(one) for one in names if getattr(error, one) is not None]
    if error.kind == "out_of_memory" and isinstance(run.thing, Run) and run.thing.budget_bytes:
        found.append(run.step("budget_bytes"))
    return found


def _where(error: Failure, *, with_rank: bool) -> str:
    rank = f" on rank {error.rank}" if with_rank and error.rank is not None else ""
    return f" in {error.phase}{rank}"


def _cause(run: Run, error: Failure) -> str:
    """What ended it, where the status does not say so."""
    if run.status == "out_of_memory":
        return "" if _is_explained(run, error) else f", {UNEXPLAINED}"
    if error.signal is not None:
        return f" by {error.signal}"
    if error.exit_code is not None:
        return f" with exit code {error.exit_code}"
    return f" by {_CAUSES[error.kind]}" if error.kind in _CAUSES else ""


def _is_explained(run: Run, error: Failure) -> bool:
    """Whether the budget leaves room for what was held, and not for what was requested as well."""
    budget, held, requested = run.budget_bytes, error.held_bytes, error.requested_bytes
    if requested is None and error.message == "std::bad_alloc":
        requested = HEAP_GROWTH_BYTES
    if error.kind != "out_of_memory" or budget is None or held is None or requested is None:
        return False
    return held <= budget < held + requested
