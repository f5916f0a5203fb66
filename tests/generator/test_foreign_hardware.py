"""No law turns false on traces that differ from the committed ones as hardware may differ."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from generator.checks.content_checks import check
from generator.content.book import Book, load
from generator.evidence.evaluation import Evidence
from generator.evidence.regime import dtype_of
from generator.evidence.verdicts import Outcome
from runners.traces.invariants import violations
from runners.traces.records import Run
from tests.generator import foreign_hardware as foreign

MIB = 2**20
OTHER_CPU = ("times x 0.01", "blocks of 2 MiB", "noise")
VARIANTS = {
    "another CPU": OTHER_CPU,
    "cuda and gloo": ("cuda and gloo",),
    "all at once": (*OTHER_CPU, "cuda and nccl"),
}


@cache
def reference() -> Book:
    return load(Path("content"), "reference-cpu-2c", is_stale=lambda _: False)


@cache
def dtypes() -> dict[str, str]:
    """The dtype of each run: recorded by it, or stated by the claims that read it."""
    book, evidence = reference(), Evidence(reference())
    found = {}
    for claim in book.claims.values():
        for name in evidence.outcome(claim.id).runs:
            run = book.run(name)
            dtype = (dtype_of(run) if run else None) or claim.regime.dtype
            if dtype in ("float32", "float64"):
                found[name] = dtype
    return found


@cache
def variant(name: str) -> Book:
    book = reference()
    for one in VARIANTS[name]:
        book = foreign.varied(book, change(one))
    return foreign.on_another_machine(book) if name == "all at once" else book


def change(name: str) -> foreign.Change:
    return {
        "times x 0.01": lambda: foreign.times(0.01),
        "blocks of 2 MiB": lambda: foreign.allocator(2 * MIB),
        "noise": lambda: foreign.noise(1, dtypes()),
        "cuda and nccl": lambda: foreign.named("cuda", "nccl"),
        "cuda and gloo": lambda: foreign.named("cuda", "gloo"),
    }[name]()


def is_false(outcome: Outcome) -> bool:
    return outcome.error is not None or outcome.verdict not in ("holds", "does_not_apply")


def false_laws(book: Book) -> list[str]:
    evidence = Evidence(book)
    outcomes = [evidence.outcome(one.id) for one in book.claims.values() if one.kind == "law"]
    return [f"{one.claim.id}: {one.explanation}" for one in outcomes if is_false(one)]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_a_trace_that_could_have_been_measured(name):
    assert [
        (trace, str(one))
        for trace, shown in variant(name).traces.items()
        if shown.grid is None  # a plan was measured on no hardware
        for one in violations(shown.trace)
    ] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_no_law_is_false_on_foreign_hardware(name):
    assert false_laws(variant(name)) == []


def _drawn() -> foreign.Change:
    """The times of each run by a factor of its own, and its losses and accuracies by another."""
    draw = random.Random(0)

    def moved(name: str, value: Any, factor: float) -> Any:
        if isinstance(value, dict):
            return {key: moved(key, one, factor) for key, one in value.items()}
        if isinstance(value, list):
            return [moved(name, one, factor) for one in value]
        if not isinstance(value, float) or not ("loss" in name or name.endswith("accuracy")):
            return value
        return min(value * factor, 1.0) if name.endswith("accuracy") else value * factor

    def change(document: foreign.Document, run: Run, name: str) -> None:
        foreign.times(draw.choice([0.03, 0.3, 1, 3, 30]))(document, run, name)
        factor = draw.choice([0.5, 0.9, 1, 1.1, 2])
        for part in ("epochs", "step_losses", "validation"):
            document[part] = moved(part, document[part], factor)

    return change


def test_whatever_another_machine_observes_no_item_ends_its_build():
    book = reference()
    there = foreign.on_another_machine(foreign.varied(book, _drawn()))
    traces = {
        name: one if one.is_plan else replace(one, reference=book.traces[name].trace)
        for name, one in there.traces.items()
    }
    own = {name: one.trace for name, one in traces.items() if not one.is_plan}
    measured = replace(book.machines[book.reference.name], machine=there.machine, traces=own)
    machines = {there.machine.name: measured, **book.machines}
    evidence = Evidence(replace(there, traces=traces, machines=machines))
    assert [str(error) for error in check(evidence)] == []
