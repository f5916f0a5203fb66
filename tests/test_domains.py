"""Laws say where they hold: none claims of an accelerator what only the CPU's arithmetic gives."""

import re
from functools import cache
from pathlib import Path

import pytest

from generator.content.book import load
from generator.evidence.evaluation import Evidence
from runners.plans.experiment import find

RUN = re.compile(r"\b([a-z_]+)\.([a-z0-9_]+)\.(?=ranks|prediction|epochs|step_losses|validation)")
# Equal only where every rank, or every run, adds in the same order.
SUMMED = re.compile(r"\.parameter_digest|gradient_digest|num_distinct$|largest_difference")
PEAK = re.compile(r"memory\.(peak_bytes|at_peak)")
DROPOUT = "replicas"  # its masks are drawn on the CPU, from a seed


@cache
def book_of(machine):
    return load(Path("content"), machine, is_stale=lambda _: False)


@cache
def laws():
    """The laws of equality of the book, one for each run."""
    claims = book_of("reference-cpu-2c").claims.values()
    return [one for one in claims if (one.kind, one.relation) == ("law", "equals")]


@cache
def on_an_accelerator(verdict):
    """The rules that have a verdict by a run of the committed machine with an accelerator."""
    return {
        rule_of(one.claim)
        for one, devices in laws_of("1x-h200-af8bca")
        if one.verdict == verdict and devices == {"cuda"}
    }


@cache
def laws_of(machine):
    """Every law on a committed machine, and the devices of its runs."""
    book = book_of(machine)
    found = [one for one in map(Evidence(book).outcome, book.claims) if one.claim.kind == "law"]
    return [(one, {run.device for run in map(book.run, one.runs) if run}) for one in found]


def rule_of(law):
    return law.id.partition("@")[0]


def can_run_on_an_accelerator(law):
    """Whether a run that a law observes leaves the CPU where there is an accelerator."""
    runs = RUN.findall(law.observed)
    return any(not find(experiment).runs[run].only_on_cpu for experiment, run in runs)


def names_no_domain(pattern):
    return [
        law.id
        for law in laws()
        if law.domain is None
        and pattern.search(law.observed)
        and not law.observed.startswith(f"{DROPOUT}.")
        and not law.predicted.endswith(".world_size")  # that all ranks differ
        and can_run_on_an_accelerator(law)
        and rule_of(law) not in on_an_accelerator("holds")
    ]


@pytest.mark.parametrize("pattern", [SUMMED, PEAK], ids=["equal to the bit", "peaks"])
def test_a_law_that_an_accelerator_may_break_names_its_domain(pattern):
    assert names_no_domain(pattern) == []


@pytest.mark.parametrize("machine", ["cpu-1c-ea2ab3", "1x-h200-af8bca"])
def test_no_law_is_false_on_another_committed_machine(machine):
    """Of the reference machine, `test_committed.py` asks more."""
    verdicts = [(one.verdict, one.claim.id) for one, _ in laws_of(machine)]
    assert sum(verdict == "holds" for verdict, _ in verdicts) > 20
    assert [law for verdict, law in verdicts if verdict == "does_not_hold"] == []
