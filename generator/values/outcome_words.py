"""How a run ended, in words that a claim predicts: `completed`, `out of memory in forward`.

In: a run of a trace. Out: a text Value made of what the run recorded: its status, and where it did
not complete the phase and the cause of the error. What the experiment declared is not read. Running
out of memory is called so only where the recorded bytes explain the refusal: what was held lay
within the budget, and with what was requested it would not have.
"""

from generator.values import units
from generator.values.paths import Node
from generator.values.value import ExpressionError, Value, computed
from runners.core.trace.records import Failure, Run

UNEXPLAINED = "not explained by the budget"
# An allocation of C++ code that finds the heap full raises `std::bad_alloc`, which names no size.
# Before that glibc tries to add a region of this size, so less than it was left.
HEAP_GROWTH_BYTES = 1 << 20
# Where a run ended, by its phase; a program of a listing marks none.
_PLACES = {
    "collective": " in a collective", "optimizer": " in the optimizer step", "program": "",
    "step": " in a step", "wrap": " while the model is wrapped",
}  # fmt: skip
_DECIDING = ("kind", "phase", "signal", "held_bytes", "requested_bytes")  # fields of an error


def ended(run: object) -> Value:
    """How a run ended, in words such as `out of memory in forward`.

    ExpressionError for anything but a run, AbsentError if the run was skipped.
    """
    if not isinstance(run, Node) or not isinstance(run.content, Run):
        raise ExpressionError("ended(…) takes a run, such as large_model.wide_ddp_budget")
    run.refuse_if_skipped()
    read: list[object] = [run.step("status")]
    words, error = run.content.status.replace("_", " "), run.content.error
    if words != "completed" and error is not None:
        place = run.step("error")
        assert isinstance(place, Node)
        read += [place.step(field) for field in _DECIDING if getattr(error, field) is not None]
        if run.content.budget_bytes:
            read.append(run.step("budget_bytes"))
        words = _failed(run.content, error)
    inputs = tuple(value for value in read if isinstance(value, Value))
    outcome = computed(words, units.TEXT, ("ended", run.formula), inputs)
    return run.reading.substitute(outcome)


def _failed(run: Run, error: Failure) -> str:
    """How and where it ended, such as `killed by SIGABRT in a collective`."""
    place = _PLACES.get(error.phase, f" in {error.phase}")
    if run.status == "out_of_memory":
        return f"out of memory{place}{'' if _is_explained(run, error) else f', {UNEXPLAINED}'}"
    how = f"killed by {error.signal}" if error.signal else run.status
    how += " with an exception" if error.kind == "exception" else ""
    return f"{how}{place}{' until the time-out' if error.kind == 'timed_out' else ''}"


def _is_explained(run: Run, error: Failure) -> bool:
    """Whether the budget leaves room for what was held, and not for what was requested as well."""
    budget, held, requested = run.budget_bytes, error.held_bytes, error.requested_bytes
    if requested is None and error.message == "std::bad_alloc":
        requested = HEAP_GROWTH_BYTES
    if error.kind != "out_of_memory" or budget is None or held is None or requested is None:
        return False
    return held <= budget < held + requested
