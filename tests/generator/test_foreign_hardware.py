"""No law turns false on traces that differ from the committed ones as hardware may differ.

The reference traces are changed as other hardware might have written them, in one thing that
hardware changes: all times, how the allocator rounds its blocks, the last digits of floating-point
training, or what the device is called. Fields that depend on each other change together, so that
the invariants still hold. Tensor bytes, payloads, counts, settings and digests stay. A digest
stands for equality to the bit on one machine, which other arithmetic moves on both sides alike.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from proofbook.generator.checks.content_checks import check
from proofbook.generator.content.book import Book
from proofbook.generator.content.claim import EPSILONS
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.regime import dtype_of
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import Run
from proofbook.runners.traces.invariants import violations

MIB = 2**20
Document = dict[str, Any]
Change = Callable[[Document, Run, str], None]
NOISE = 3e-7  # of fp32; other dtypes take as many of their own epsilons
# Counts and times in disguise, and weights that no training has touched.
NOT_OF_TRAINING = ("_share", "_bytes", "_rate", "_built", "_wrapped")
RESIDUES = ("distance", "difference", "distances", "differences")


def varied(book: Book, change: Change) -> Book:
    """A book whose traces are each changed by a rule, run by run."""

    def changed(run: Run, name: str) -> Run:
        document = run.model_dump(mode="json")
        change(document, run, name)
        return Run.model_validate(document)

    return _with_runs(book, changed)


def _with_runs(book: Book, change: Callable[[Run, str], Run]) -> Book:
    traces = {}
    for name, shown in book.traces.items():
        trace = shown.trace
        runs = {one: change(run, f"{trace.experiment}.{one}") for one, run in trace.runs.items()}
        trace = trace.model_copy(update={"runs": runs})
        traces[name] = replace(shown, trace=trace, reference=trace)
    return replace(book, traces=traces)


def times(factor: float) -> Change:
    """All measured times by a factor; what a simulation worked out is no time of this machine."""

    def scaled(value: Any) -> Any:
        if isinstance(value, dict) and value.get("unit") == "seconds":
            samples = [second * factor for second in value["samples"]]
            return SampledSeconds.of(samples).model_dump(mode="json")
        if isinstance(value, dict):
            return {key: scaled(one) if _is_time(key, one) else one for key, one in value.items()}
        if isinstance(value, list):
            return [scaled(one) for one in value]
        return value * factor

    def change(document: Document, run: Run, name: str) -> None:
        if run.nature != "simulated":
            document["timing"] = scaled(document["timing"])
        if run.error and run.error.kind == "timed_out":  # faster hardware waits as long
            document["timing"]["wall_seconds"] = run.timing.wall_seconds

    return change


def _is_time(key: str, value: Any) -> bool:
    """Whether a field of `timing` holds times: not a rank, a share, a name or a yes."""
    if isinstance(value, dict | list):
        return True
    return isinstance(value, float) and not key.endswith("_share")


def allocator(block: int) -> Change:
    """Allocator bytes in whole blocks, as an allocator with blocks of this size gives them out."""

    def change(document: Document, run: Run, name: str) -> None:
        failures = [document["error"], *(rank["failure"] for rank in document["ranks"])]
        for failure in filter(None, failures):
            _refused(failure, run.budget_bytes or 0, block)
        for memory in filter(None, (rank["memory"] for rank in document["ranks"])):
            _given_out(memory, block)

    return change


def _refused(failure: Document, budget: int, block: int) -> None:
    """An allocator never gives out more than the budget."""
    failure["requested_bytes"] = _up(failure["requested_bytes"], block)
    if failure["held_bytes"] is not None:
        failure["held_bytes"] = min(_up(failure["held_bytes"], block), budget // block * block)


def _given_out(memory: Document, block: int) -> None:
    memory["kernel_peak_bytes"] = _up(memory["kernel_peak_bytes"], block)
    if memory["peak_bytes"] is not None:
        peak = _up(memory["peak_bytes"], block)
        rounding = peak - memory["peak_bytes"]
        memory["allocator"] = {
            "peak_bytes": peak, "workspace_bytes": 0, "rounding_bytes": rounding,
            "host_peak_bytes": None,
        }  # fmt: skip


def _up(size: Any, block: int) -> Any:
    return None if size is None else -(-size // block) * block


def noise(seed: int, dtypes: Mapping[str, str]) -> Change:
    """Other last digits of everything that floating-point training gives.

    A value moves by a few epsilons of its dtype. A distance that rounding alone made moves by as
    many, since both of its ends do; one that is exactly zero stays, since it means equal bits.

    Args:
        seed: of the draws.
        dtypes: of the runs that calculate in another dtype than fp32, as `experiment.run`.
    """
    draw = random.Random(seed)

    def moved(name: str, value: float, scale: float) -> float:
        if name.endswith(NOT_OF_TRAINING):
            return value
        if name.endswith(RESIDUES) and value:
            value = abs(value + draw.uniform(-2, 2) * scale)
        return value * (1 + draw.uniform(-1, 1) * scale)

    def change(document: Document, run: Run, name: str) -> None:
        scale = NOISE * EPSILONS[dtypes.get(name, "float32")] / EPSILONS["float32"]
        for part in ("stages", "epochs", "step_losses", "validation", "prediction", "ranks"):
            document[part] = _moved(part, document[part], partial(moved, scale=scale))

    return change


def _moved(name: str, value: Any, by: Callable[[str, float], float]) -> Any:
    """A part of a record with each of its floats moved by a rule; no accuracy goes beyond one."""
    if isinstance(value, dict):
        return {key: _moved(key, one, by) for key, one in value.items()}
    if isinstance(value, list):
        return [_moved(name, one, by) for one in value]
    if not isinstance(value, float):
        return value
    return min(by(name, value), 1.0) if name.endswith("accuracy") else by(name, value)


def named(book: Book, device: str, backend: str) -> Book:
    """A book whose traces give another device and another backend their names."""
    names = {"device": device, "backend": backend}

    def change(run: Run, _: str) -> Run:
        return run if run.nature == "simulated" else run.model_copy(update=names)

    return _with_runs(book, change)


def on_another_machine(book: Book) -> Book:
    """The machine's own names changed: its id and its processor."""
    machine = book.machine.model_copy(update={"name": "desk", "cpu": "Another CPU"})
    traces: Mapping[str, Any] = {
        name: replace(shown, machine=machine) for name, shown in book.traces.items()
    }
    return replace(book, traces=dict(traces), machine=machine)


def dtypes(book: Book) -> dict[str, str]:
    """The dtype of each run: recorded by it, or stated by the claims that read it."""
    evidence, found = Evidence(book), {}
    for claim in book.claims.values():
        for name in evidence.judged(claim.id).runs:
            run = book.run(name)
            dtype = (dtype_of(run) if run else None) or claim.regime.dtype
            if dtype in ("float32", "float64"):
                found[name] = dtype
    return found


@pytest.fixture(scope="module")
def other_cpu(real: Book) -> Book:
    changes = times(0.01), allocator(2 * MIB), noise(1, dtypes(real))

    def change(*run: Any) -> None:
        for one in changes:
            one(*run)

    return varied(real, change)


@pytest.fixture(scope="module", params=["another CPU", "cuda and gloo", "all at once"])
def variant(request: pytest.FixtureRequest, real: Book, other_cpu: Book) -> Book:
    if request.param == "cuda and gloo":
        return named(real, "cuda", "gloo")
    if request.param == "another CPU":
        return other_cpu
    return on_another_machine(named(other_cpu, "cuda", "nccl"))


def test_a_variant_is_a_trace_that_could_have_been_measured(variant):
    assert [
        (trace, str(one))
        for trace, shown in variant.traces.items()
        if shown.grid is None  # a plan was measured on no hardware
        for one in violations(shown.trace)
    ] == []


def test_no_law_is_false_on_foreign_hardware(variant):
    evidence = Evidence(variant)
    laws = [evidence.judged(one.id) for one in variant.claims.values() if one.kind == "law"]
    false = [one for one in laws if one.error or one.verdict not in ("holds", "does_not_apply")]
    assert [f"{one.claim.id}: {one.explanation}" for one in false] == []


def _drawn() -> Change:
    """The times of each run by a factor of its own, and its losses and accuracies by another."""
    draw = random.Random(0)

    def moved(name: str, value: float, factor: float) -> float:
        return value * factor if "loss" in name or name.endswith("accuracy") else value

    def change(document: Document, run: Run, name: str) -> None:
        times(draw.choice([0.03, 0.3, 1, 3, 30]))(document, run, name)
        factor = draw.choice([0.5, 0.9, 1, 1.1, 2])
        for part in ("epochs", "step_losses", "validation"):
            document[part] = _moved(part, document[part], partial(moved, factor=factor))

    return change


def test_whatever_another_machine_observes_no_item_ends_its_build(real):
    there = on_another_machine(varied(real, _drawn()))
    traces = {
        name: one if one.is_of_planner else replace(one, reference=real.traces[name].trace)
        for name, one in there.traces.items()
    }
    own = {name: one.trace for name, one in traces.items() if not one.is_of_planner}
    measured = replace(real.machines[real.reference.name], machine=there.machine, traces=own)
    machines = {there.machine.name: measured, **real.machines}
    evidence = Evidence(replace(there, traces=traces, machines=machines))
    assert [str(error) for error in check(evidence)] == []
