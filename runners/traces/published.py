"""Simulations of published measurements, committed beside them: planner/published_plans.json.

Flow: `python -m runners plan --published --grid` simulates every row of
planner/published_measurements.yml and writes this file; pages read it alone. `as_trace` shows it
as a trace with a run for each row: `plan_published.RUN.ranks[0].measures.reserved_bytes`. No torch.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from runners.traces import plan_grid
from runners.traces.digest import ROOT, file_digest
from runners.traces.plan_grid import PREFIX, Simulated, engine_digest
from runners.traces.records import RankRecord, Run, Trace
from runners.traces.schema import Record, Setting

EXPERIMENT = f"{PREFIX}published"
FILE = "planner/published_plans.json"  # of the content
ROWS = "planner/published_measurements.yml"
CHOICES = "planner/published_choices.yml"
QUESTION = "How far are simulated peaks from published ones?"


class PublishedPeak(Record):
    """A published number and its simulation.

    Attributes:
        kind: `allocated` are blocks given out, `active` those and freed ones that a stream still
            uses, `reserved` all segments.
        measured_bytes: as published.
        resolution_bytes: half of what the last published digit counts.
        simulated_bytes: None where it cannot be simulated.
        explained: why it misses by more than the limit; None where it does not.
        with_term_bytes: simulated once more with what explains it.
    """

    kind: Literal["allocated", "active", "reserved"]
    field: str
    measured_bytes: float
    resolution_bytes: float
    simulated_bytes: int | None
    explained: str | None = None
    with_term_bytes: int | None = None

    @property
    def error(self) -> float | None:
        """Of the simulation, relative to what was measured."""
        simulated = self.simulated_bytes
        return None if simulated is None else simulated / self.measured_bytes - 1


class PublishedPlan(Record):
    """A published configuration.

    Attributes:
        id, case: the row's, and its name at the source.
        repository, commit, path: where it is published.
        settings: of its model and training, by name.
        workspace_bytes: of libraries, which no simulation knows; contained in allocated and active
            peaks.
        reason: why it cannot be simulated.
    """

    id: str
    case: str
    repository: str
    commit: str
    path: str
    settings: dict[str, Setting]
    workspace_bytes: int
    peaks: Annotated[list[PublishedPeak], Field(min_length=1)]
    reason: str | None = None
    seconds: float


class PublishedChoice(Record):
    """A published search for the best layout, and what the law of time prefers of its layouts.

    Attributes:
        repository, commit, path: where it is published.
        settings: of model, batch and cluster, by name.
        won, preferred: tensor- and pipeline-parallel ranks, and samples of a microbatch, of the
            layout whose measured step is the shortest, and of the first one by the law.
        slower_share: how much longer the measured step of the preferred one is.
        num_layouts: that were measured; `num_out_of_memory` more ran out of memory.
        num_pairs: of layouts whose measured steps differ by 5 % at least.
        num_right, num_wrong: of these the pairs that the law orders as they were measured, and the
            other way; in the rest its bounds differ by less than 5 %.
    """

    id: str
    repository: str
    commit: str
    path: str
    settings: dict[str, Setting]
    won: list[int]
    preferred: list[int]
    slower_share: float
    num_layouts: int
    num_out_of_memory: int
    num_pairs: int
    num_right: int
    num_wrong: int


class PublishedPlans(Simulated):
    """content/planner/published_plans.json.

    Attributes:
        most_error: a row that misses by more than this share has its explanation.
        choices: of layouts, by others and by the law of time.
    """

    most_error: float
    choices: list[PublishedChoice] = []
    rows: Annotated[list[PublishedPlan], Field(min_length=1)]


def run_of(row: str) -> str:
    """The name of a row's run."""
    return row.replace("-", "_").replace(".", "_")


def reference_of(row: str, kind: str) -> str:
    """The name by which expressions cite a published number: `cited['published-…-reserved']`."""
    return f"published-{row}-{kind}"


def code_digest() -> str:
    """The digest of what the simulations follow from, 16 hexadecimal digits."""
    digest = hashlib.sha256(engine_digest().encode())
    for listed in (ROWS, CHOICES):
        digest.update((ROOT / "content" / listed).read_bytes())
    for name in ("published", "published_choices"):
        digest.update(file_digest(ROOT / "runners" / "planning" / f"{name}.py").encode())
    return digest.hexdigest()[:16]


def as_trace(plans: PublishedPlans) -> Trace:
    """The rows and the choices as a trace: a run for each."""
    runs = {run_of(one.id): _run(one) for one in plans.rows}
    runs |= {choice_run(one): _choice(one) for one in plans.choices}
    return plan_grid.trace_of(EXPERIMENT, QUESTION, plans, runs)


def choice_run(choice: PublishedChoice) -> str:
    """The name of a choice's run."""
    return f"choice_{run_of(choice.id)}"


def _choice(choice: PublishedChoice) -> Run:
    measured = ("slower_share", "num_layouts", "num_pairs", "num_right", "num_wrong")
    measures: dict[str, Setting] = {name: getattr(choice, name) for name in measured}
    rank = RankRecord(rank=0, status="completed", measures=measures)
    return plan_grid.run_of("published", choice.settings, [rank], 0.0)


def _run(row: PublishedPlan) -> Run:
    measures: dict[str, Setting] = {}
    for one in row.peaks:
        if one.simulated_bytes:
            measures[f"{one.kind}_bytes"] = one.simulated_bytes
        if one.with_term_bytes:
            measures[f"with_term_{one.kind}_bytes"] = one.with_term_bytes
    measures["workspace_bytes"] = row.workspace_bytes
    rank = RankRecord(rank=0, status="completed", measures=measures)
    return plan_grid.run_of("published", row.settings, [rank], row.seconds)
