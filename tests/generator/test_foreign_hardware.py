"""No law turns false on traces that differ from the committed ones as hardware may differ.

The reference traces are changed as other hardware might have written them, in one thing that
hardware changes: all times, how the allocator rounds its blocks, the last digits of floating-point
training, or what the device is called. Fields that depend on each other change together, so that
the invariants still hold. Tensor bytes, payloads, counts, settings and digests stay. A digest
stands for equality to the bit on one machine, which other arithmetic moves on both sides alike.
"""

import random
from dataclasses import replace
from functools import partial

import pytest

from proofbook.generator.checks.content_checks import check
from proofbook.generator.content.claim import EPSILONS
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.regime import dtype_of
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import Run

MIB = 2**20
NOISE = 3e-7  # of fp32; other dtypes take as many of their own epsilons
# Counts and times in disguise, and weights that no training has touched.
NOT_OF_TRAINING = ("_share", "_bytes", "_rate", "_built", "_wrapped")
RESIDUES = ("distance", "difference", "distances", "differences")


def varied(book, *changes):
    """A book whose traces are each changed by rules: of a run its JSON, record and name."""

    def changed(run, name):
        document = run.model_dump(mode="json")
        for change in changes:
            change(document, run, name)
        return Run.model_validate(document)

    return with_runs(book, changed)


def with_runs(book, change):
    traces = {}
    for name, shown in book.traces.items():
        trace = shown.trace
        runs = {one: change(run, f"{trace.experiment}.{one}") for one, run in trace.runs.items()}
        trace = trace.model_copy(update={"runs": runs})
        traces[name] = replace(shown, trace=trace, reference=trace)
    return replace(book, traces=traces)


def times(factor):
    """All measured times by a factor; what a simulation worked out is no time of this machine."""

    def is_time(key, value):
        return isinstance(value, dict | list | float) and not str(key).endswith("_share")

    def scaled(value):
        if isinstance(value, dict) and value.get("unit") == "seconds":
            samples = [second * factor for second in value["samples"]]
            return SampledSeconds.of(samples).model_dump(mode="json")
        if isinstance(value, dict):
            return {key: scaled(one) if is_time(key, one) else one for key, one in value.items()}
        return [scaled(one) for one in value] if isinstance(value, list) else value * factor

    def change(document, run, name):
        if run.nature != "simulated":
            document["timing"] = scaled(document["timing"])
        if run.error and run.error.kind == "timed_out":  # faster hardware waits as long
            document["timing"]["wall_seconds"] = run.timing.wall_seconds

    return change


def allocator(block):
    """Allocator bytes in whole blocks; it never gives out more than the budget."""

    def up(size):
        return None if size is None else -(-size // block) * block

    def change(document, run, name):
        budget = (run.budget_bytes or 0) // block * block
        failures = [document["error"], *(rank["failure"] for rank in document["ranks"])]
        for failure in filter(None, failures):
            failure["requested_bytes"] = up(failure["requested_bytes"])
            if failure["held_bytes"] is not None:
                failure["held_bytes"] = min(up(failure["held_bytes"]), budget)
        for memory in filter(None, (rank["memory"] for rank in document["ranks"])):
            memory["kernel_peak_bytes"] = up(memory["kernel_peak_bytes"])
            if memory["peak_bytes"] is not None:
                peak = up(memory["peak_bytes"])
                rounding = {"rounding_bytes": peak - memory["peak_bytes"], "workspace_bytes": 0}
                memory["allocator"] = {"peak_bytes": peak, "host_peak_bytes": None, **rounding}

    return change


def noise(seed, dtypes):
    """Other last digits of everything that floating-point training gives.

    A value moves by a few epsilons of its dtype. A distance that rounding alone made moves by as
    many, since both of its ends do; one that is exactly zero stays, since it means equal bits.
    """
    draw = random.Random(seed)

    def moved(name, value, scale):
        if name.endswith(NOT_OF_TRAINING):
            return value
        if name.endswith(RESIDUES) and value:
            value = abs(value + draw.uniform(-2, 2) * scale)
        return value * (1 + draw.uniform(-1, 1) * scale)

    def change(document, run, name):
        scale = NOISE * EPSILONS[dtypes.get(name, "float32")] / EPSILONS["float32"]
        for part in ("stages", "epochs", "step_losses", "validation", "prediction", "ranks"):
            document[part] = moved_floats(part, document[part], partial(moved, scale=scale))

    return change


def moved_floats(name, value, by):
    """A part of a record with each of its floats moved by a rule; no accuracy goes beyond one."""
    if isinstance(value, dict):
        return {key: moved_floats(key, one, by) for key, one in value.items()}
    if isinstance(value, list):
        return [moved_floats(name, one, by) for one in value]
    if not isinstance(value, float):
        return value
    return min(by(name, value), 1.0) if name.endswith("accuracy") else by(name, value)


def named(book, device, backend):
    """A book whose traces give another device and another backend their names."""
    names = {"device": device, "backend": backend}
    return with_runs(
        book, lambda run, _: run if run.nature == "simulated" else run.model_copy(update=names)
    )


def on_another_machine(book):
    """The machine's own names changed: its id and its processor."""
    machine = book.machine.model_copy(update={"name": "desk", "cpu": "Another CPU"})
    traces = {name: replace(shown, machine=machine) for name, shown in book.traces.items()}
    return replace(book, traces=traces, machine=machine)


def dtypes(book):
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
def other_cpu(real):
    return varied(real, times(0.01), allocator(2 * MIB), noise(1, dtypes(real)))


@pytest.mark.parametrize("changed", ["another CPU", "cuda and gloo", "all at once"])
def test_no_law_is_false_on_foreign_hardware(real, other_cpu, changed):
    variant = other_cpu
    if changed == "cuda and gloo":
        variant = named(real, "cuda", "gloo")
    elif changed == "all at once":
        variant = on_another_machine(named(other_cpu, "cuda", "nccl"))
    evidence = Evidence(variant)
    laws = [evidence.judged(one.id) for one in variant.claims.values() if one.kind == "law"]
    false = [one for one in laws if one.error or one.verdict not in ("holds", "does_not_apply")]
    assert [f"{one.claim.id}: {one.explanation}" for one in false] == []


def drawn():
    """The times of each run by a factor of its own, and its losses and accuracies by another."""
    draw = random.Random(0)

    def moved(name, value, factor):
        return value * factor if "loss" in name or name.endswith("accuracy") else value

    def change(document, run, name):
        times(draw.choice([0.03, 0.3, 1, 3, 30]))(document, run, name)
        factor = draw.choice([0.5, 0.9, 1, 1.1, 2])
        for part in ("epochs", "step_losses", "validation"):
            document[part] = moved_floats(part, document[part], partial(moved, factor=factor))

    return change


def test_whatever_another_machine_observes_no_item_ends_its_build(real):
    there = on_another_machine(varied(real, drawn()))
    traces = {
        name: one if one.nature else replace(one, reference=real.traces[name].trace)
        for name, one in there.traces.items()
    }
    own = {name: one.trace for name, one in traces.items() if not one.nature}
    measured = replace(real.machines[real.reference.name], machine=there.machine, traces=own)
    machines = {there.machine.name: measured, **real.machines}
    evidence = Evidence(replace(there, traces=traces, machines=machines))
    assert [str(error) for error in check(evidence)] == []
