"""A trace that says otherwise than its experiment's file is stale, and says in which field."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from generator.content.shelf import is_stale
from runners.measuring.pending import staleness
from runners.plans import declarations
from runners.plans.declarations import difference
from runners.plans.experiment import find, on_device
from runners.traces import files
from runners.traces.digest import program_digests, source_digest
from runners.traces.files import NOT_TRACES, read
from runners.traces.records import Death, Trace

REFERENCE = Path("content/traces/reference-cpu-2c")


@pytest.fixture
def ddp(root: Path) -> Trace:
    """The reference trace of an experiment, as if it had been measured with what is here now."""
    trace = read(root / REFERENCE / "ddp.json")
    code = trace.code.model_copy(
        update={"digest": source_digest("ddp"), "programs": program_digests("ddp")}
    )
    torch = {"torch": metadata.version("torch")}
    under = trace.circumstances.model_copy(update=torch)
    return trace.model_copy(update={"code": code, "circumstances": under})


def _with(trace: Trace, **fields: Any) -> Trace:
    run = trace.runs["ddp"].model_copy(update=fields)
    return trace.model_copy(update={"runs": {**trace.runs, "ddp": run}})


def test_no_fresh_reference_trace_differs_from_its_declaration(root: Path) -> None:
    paths = [p for p in (root / REFERENCE).glob("*.json") if p.stem not in NOT_TRACES]
    traces = [read(path) for path in paths]
    fresh = [trace for trace in traces if not files.is_stale(trace)]
    assert {one.experiment: difference(one) for one in fresh if difference(one)} == {}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"world_size": 8}, "world_size"),
        ({"budget_bytes": 10**9}, "budget_bytes"),
        ({"expected_status": "failed"}, "expected_status"),
        ({"expected_death": Death(rank=0, phase="step", signal="SIGKILL")}, "expected_death"),
        ({"settings": {}}, "settings."),
    ],
)
def test_what_differs_from_the_declaration_makes_a_trace_stale(
    ddp: Trace, changes: dict[str, Any], field: str
) -> None:
    assert difference(ddp) is None
    assert not is_stale(ddp)
    assert staleness(ddp) is None
    other = _with(ddp, **changes)
    assert str(difference(other)).startswith(field)
    assert "of run ddp differs from the experiment's declaration" in str(difference(other))
    assert is_stale(other)
    assert str(staleness(other)).startswith(f"stale: {field}")


def test_another_question_and_an_unknown_run_are_differences(ddp: Trace) -> None:
    asked = ddp.model_copy(update={"question": "Is it faster?"})
    assert difference(asked) == "question differs from the experiment's declaration"
    runs = {**ddp.runs, "of_nobody": ddp.runs["ddp"]}
    more = ddp.model_copy(update={"runs": runs})
    assert difference(more) == "run of_nobody is not declared by the experiment"


def test_on_an_accelerator_the_larger_settings_are_the_declared_ones(root: Path) -> None:
    found = next(e for p in sorted((root / REFERENCE).glob("*.json")) if p.stem not in NOT_TRACES
                 for e in [find(p.stem)] if e.on_cuda and not e.full)  # fmt: skip
    trace = read(root / REFERENCE / f"{found.name}.json")
    plans = on_device(found, "cuda").runs
    runs = {
        name: run.model_copy(update={"device": "cuda", "settings": plans[name].settings.as_json()})
        for name, run in trace.runs.items()
    }
    assert difference(trace.model_copy(update={"runs": runs})) is None
    small = {n: r.model_copy(update={"device": "cuda"}) for n, r in trace.runs.items()}
    assert "settings." in str(difference(trace.model_copy(update={"runs": small})))


def test_code_that_was_edited_after_it_was_loaded_is_not_compared(
    ddp: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = _with(ddp, seed=1)
    assert difference(other) is not None
    monkeypatch.setattr(declarations, "source_digest", lambda _: "edited")
    assert difference(other) is None


def test_a_computed_setting_may_differ_by_rounding_between_pythons(root: Path) -> None:
    trace = read(root / "content/traces/reference-cpu-2c/stragglers.json")
    run = trace.runs["sometimes"]
    seconds = run.settings["busiest_rank_seconds"]
    assert isinstance(seconds, float)
    for factor, differs in ((1 + 1e-15, False), (1 + 1e-6, True)):
        settings = {**run.settings, "busiest_rank_seconds": seconds * factor}
        runs = {**trace.runs, "sometimes": run.model_copy(update={"settings": settings})}
        assert bool(difference(trace.model_copy(update={"runs": runs}))) == differs
