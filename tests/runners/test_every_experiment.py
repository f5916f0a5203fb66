"""Every experiment of the book, run once at the sizes of a try: its laws must hold there too.

In: what experiments declare, `TRIED_WITH` among it. Out: traces of a machine of their own, on which
the book judges its claims. Programs that pages print are left to the sample of `test_reproduce`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from generator.content.book import Book, load
from generator.evidence.evaluation import Evidence
from generator.evidence.verdicts import judge
from runners.commands.try_run import prepare
from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.plans.experiment import find, names
from runners.traces import machine
from runners.traces.files import write, write_machine
from runners.traces.records import Run, Trace
from tests.conftest import ROOT

pytestmark = pytest.mark.ranks
MACHINE = "tried"
OF_PROGRAMS = {"listings", "repeats"}


@pytest.fixture(scope="module")
def tried(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Trace]]:
    """A copy of the content with a machine that tried every run, and that machine's traces."""
    content = tmp_path_factory.mktemp("tried") / "content"
    shutil.copytree(ROOT / "content", content, ignore=shutil.ignore_patterns("cpu-*", "tries"))
    (content / "traces" / "this-machine").unlink(missing_ok=True)
    here = machine.describe().model_copy(update={"name": MACHINE})
    write_machine(content / "traces" / MACHINE, here)
    traces = {}
    for name in sorted(set(names()) - OF_PROGRAMS):
        experiment = find(name)
        plans = {run: prepare(experiment, run, ()).plan for run in experiment.runs}
        experiment = replace(experiment, runs=plans)
        runs: dict[str, Run] = {}
        for run in plans:
            runs[run] = measure.measure_run(launcher, experiment, run, earlier=runs)
        code = measure.code_of(name)
        traces[name] = measure.trace_of(experiment, code, here, runs, measure.now())
        write(content / "traces" / MACHINE / f"{name}.json", traces[name])
    return content, traces


def test_every_run_ends_as_declared(tried: tuple[Path, dict[str, Trace]]) -> None:
    ends = {
        f"{name}.{run}": f"{one.status}: {one.error and one.error.message}"
        for name, trace in tried[1].items()
        for run, one in trace.runs.items()
        if one.is_surprise
    }
    assert not ends


def test_every_law_that_was_tried_holds(tried: tuple[Path, dict[str, Trace]]) -> None:
    book: Book = load(tried[0], MACHINE)
    broken = {
        name: outcome.explanation
        for name, outcome in judge(book, Evidence(book)).items()
        if outcome.claim.kind == "law"
        and outcome.machine == MACHINE
        and outcome.verdict == "does_not_hold"
    }
    assert not broken
