"""Outcomes: predicted in words, explained by the recorded bytes, and never by a declaration."""

from dataclasses import replace

import pytest

from proofbook.generator.values.evaluation import Evidence

RUN = "tiny_memory.whole_budget"
ERROR = {
    "kind": "out_of_memory", "message": "no", "phase": "backward", "rank": 0, "step": 0,
    "requested_bytes": 40_000, "held_bytes": 100_000,
}  # fmt: skip


def words(copy, **fields):
    copy.change_run(RUN, **fields)
    return str(Evidence(copy.load()).evaluate(f"ended({RUN})").result)


FULL = {**ERROR, "message": "std::bad_alloc", "requested_bytes": None}


@pytest.mark.parametrize(
    ("error", "budget_bytes", "is_explained"),
    [
        (ERROR, 120_000, True),  # what was held fits, and the request does not
        (FULL, 200_000, True),  # a heap that had less left than it grows by
        (FULL, 100_000 + (1 << 20), False),
        (ERROR, 1_200_000, False),  # there was room
        (ERROR, 140_000, False),  # it would have fitted to the byte
        (ERROR, 99_999, False),  # more was held than allowed
        (ERROR, None, False),
        ({**ERROR, "held_bytes": None}, 120_000, False),
        ({**ERROR, "kind": "exception"}, 120_000, False),
    ],
)
def test_memory_is_the_reason_where_the_budget_explains_it(copy, error, budget_bytes, is_explained):
    rest = "" if is_explained else ", not explained by the budget"
    told = words(copy, error=error, budget_bytes=budget_bytes)
    assert told == f"out of memory in backward{rest}"


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        ("died", {"kind": "signal", "signal": "SIGKILL"}, "killed by SIGKILL in a step"),
        ("deadlocked", {"kind": "hang", "rank": None}, "deadlocked in a step"),
        ("deadlocked", {"kind": "timed_out"}, "deadlocked in a step until the time-out"),
        ("failed", {"kind": "exception"}, "failed with an exception in a step"),
    ],
)
def test_other_outcomes_name_their_phase_and_cause(copy, status, error, told):
    error = {"message": "", "phase": "step", "rank": 1, "step": 2, "requested_bytes": None, **error}
    assert words(copy, status=status, error=error) == told


@pytest.mark.parametrize(("field", "value"), [("status", "completed"), ("budget_bytes", 1 << 40)])
def test_neither_a_declaration_nor_a_larger_budget_saves_a_law_about_memory(real, field, value):
    run, law = "wide_fsdp_budget", "lm-out-of-memory-in-forward@large_model.wide_fsdp_budget"
    assert Evidence(real).judged(law).verdict == "holds"
    shown = real.traces["large_model"]
    ended = shown.trace.runs[run].model_copy(update={field: value})
    trace = shown.trace.model_copy(update={"runs": {**shown.trace.runs, run: ended}})
    traces = {**real.traces, "large_model": replace(shown, trace=trace)}
    assert Evidence(replace(real, traces=traces)).judged(law).is_broken_law
