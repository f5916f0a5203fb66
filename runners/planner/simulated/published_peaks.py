"""Published measurements of memory beside their simulations.

In: planner/published_measurements.yml, whose head states which measurements qualify: rows with the
whole configuration, what was measured, and the exact place that states it. Out: for each a
`Question`, and a run with measured and simulated bytes, misses included.
Nothing is fitted to a row. What a simulation cannot know is a named term: the workspaces of
libraries on Megatron's ranks (`workspace_bytes`). A row that misses because of what a plan leaves
out is simulated once more with it (`terms`).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from runners.declared.settings import Count
from runners.planner.answers.answer import GIB, Answer
from runners.planner.answers.architecture import Architecture, Id, Source
from runners.planner.answers.published import MOST_ERROR, PLANNER, run, run_name
from runners.planner.answers.question import (
    Implementation,
    Model,
    PlanError,
    Question,
    Strategy,
    Training,
)
from runners.planner.answers.search import Simulate
from runners.planner.simulated.processes import answers
from runners.traces.records import Run
from runners.traces.schema import Record, Setting

Positive = Annotated[float, Field(gt=0)]


class Device(Record):
    """What it ran on."""

    name: str
    memory_gib: Positive | None = Field(None, description="where the source states it")
    count: Count


class Measurement(Record):
    """One published number.

    Attributes:
        kind: `allocated` are blocks given out, `active` those and freed ones that a stream still
            uses, `reserved` all segments.
        moment: `peak` since the start, or `between_steps`.
        rank: which rank's; `largest` over all.
        value: as published, in `unit`; `percent` is of the device's memory.
        step: after which update it was read, where the source says so.
    """

    kind: Literal["allocated", "active", "reserved"]
    moment: Literal["peak", "between_steps"]
    rank: Literal["last", "largest", "unstated"]
    value: Positive
    unit: Literal["bytes", "GiB", "percent"]
    step: Count | None = None
    field: str


class PublishedRow(Training, Implementation):
    """One training that was measured, in the fields by which a plan asks for it.

    Attributes:
        id: names the row, and its strategy; `case` is its name at the source.
        source: where it stands; its path may hold `{case}`.
        framework: whose layers; they decide which activations are kept.
        details: other settings that change what is allocated, by the names of notes.
        derived: what the source does not state and how it follows, by the names of notes.
    """

    id: Id
    case: str
    source: Source
    framework: Literal["transformer_engine", "megatron_local", "torchtitan"]
    model: str
    architecture: Architecture
    strategy: Strategy
    device: Device
    measured: Annotated[list[Measurement], Field(min_length=1)]
    details: list[str] = []
    derived: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _names_its_strategy(cls, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "strategy": {"name": row["id"], **row["strategy"]}}

    @property
    def question(self) -> Question:
        """The row as a plan asks it."""
        return Question(
            model=Model(name=self.model, architecture=self.architecture),
            training=Training(**self.model_dump(include={*Training.model_fields})),
            implementation=Implementation(
                **self.model_dump(include={*Implementation.model_fields})
            ),
            strategy=self.strategy,
        )

    @property
    def workspace_bytes(self) -> int:
        """What libraries keep on a rank of Megatron's.

        A workspace for each of torch's two handles of cuBLAS, that of the main thread and that of
        autograd's (aten/src/ATen/cuda/CublasHandlePool.cpp of pytorch/pytorch at 26a39059: 32 MiB
        on Hopper and by CUBLAS_WORKSPACE_CONFIG :4096:8, else 8.125), and 32 MiB of Transformer
        Engine (`get_cublas_workspace_size_bytes`). What the rows hold between steps exceeds their
        state by so much, and at most 20 MiB more (tests/runners/test_published.py).
        """
        if self.framework == "torchtitan":
            return 0
        is_large = "H100" in self.device.name or {"cublas-workspace", "deterministic"} & {
            *self.details
        }
        return round((2 * (32 if is_large else 8.125) + 32) * 2**20)

    @property
    def path(self) -> str:
        """The file, or what else of its source holds the row."""
        return self.source.path.replace("{case}", self.case)

    def bytes_of(self, kind: str, moment: str = "peak") -> float | None:
        """A measurement in bytes; None where this kind was not published."""
        percent = (self.device.memory_gib or 0) * GIB / 100
        units = {"bytes": 1, "GiB": GIB, "percent": percent}
        found = (one for one in self.measured if (one.kind, one.moment) == (kind, moment))
        return next((one.value * units[one.unit] for one in found), None)


@cache
def published() -> list[PublishedRow]:
    """The rows, in the order of the file, whose head says what else it holds.

    Raises:
        ValueError: a row is not what it should be.
    """
    return [PublishedRow.model_validate(row) for row in _file()["rows"]]


@cache
def _file() -> dict[str, Any]:
    text = (PLANNER / "published_measurements.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


class Term(Record):
    """What the simulation of some rows leaves out; all were found after the first comparison.

    Attributes:
        rows: their ids.
        says: what it is, and where that is stated.
        implementation: the fields that add it; None where no plan can.
    """

    rows: list[Id]
    says: str
    implementation: dict[str, bool] | None = None


@cache
def terms() -> dict[str, Term]:
    """The term of each row that has one, by the row's id."""
    found = [Term.model_validate(one) for one in _file()["terms"]]
    return {row: one for one in found for row in one.rows}


def _questions(row: PublishedRow) -> Iterator[Question]:
    """The row as a plan asks it; then with its term, where a plan can add that."""
    asked, term = row.question, terms().get(row.id)
    yield asked
    if term is not None and term.implementation is not None:
        implementation = asked.implementation.model_copy(update=term.implementation)
        yield asked.model_copy(update={"implementation": implementation})


def again(names: Sequence[str]) -> dict[str, Run]:
    """Rows simulated anew, as runs by their names.

    Raises:
        PlanError: there is no such row any more, or it cannot be simulated now.
    """
    known = {run_name(row.id): row for row in published()}
    gone = [name for name in names if name not in known]
    if gone:
        raise PlanError(f"no published row is called {gone[0]!r} any more")
    return runs([known[name] for name in names], answers)


def runs(rows: Sequence[PublishedRow], simulate: Simulate) -> dict[str, Run]:
    """A run for each row: every published peak, and its simulation.

    Raises:
        PlanError: a row cannot be simulated.
    """
    asked = [(row.id, question) for row in rows for question in _questions(row)]
    found: defaultdict[str, list[Answer]] = defaultdict(list)
    simulated = simulate([question for _, question in asked])
    for (name, _), answer in zip(asked, simulated, strict=True):
        if answer.reason is not None:
            raise PlanError(f"{name}: {answer.reason}")
        found[name].append(answer)
    places = {row.id: place for place, row in enumerate(published())}
    return {run_name(row.id): _run(row, places[row.id], *found[row.id]) for row in rows}


def _run(row: PublishedRow, place: int, answer: Answer, second: Answer | None = None) -> Run:
    settings = {"place": place, **_settings(row)}
    measures: dict[str, Setting] = {"workspace_bytes": row.workspace_bytes}
    for one in row.measured:
        published_bytes = row.bytes_of(one.kind)
        if one.moment != "peak" or published_bytes is None:
            continue
        simulated = _simulated(row, answer, one)
        settings[f"published_{one.kind}_bytes"] = published_bytes
        settings[f"field_{one.kind}"] = one.field
        measures[f"{one.kind}_bytes"] = simulated
        if abs(simulated / published_bytes - 1) > MOST_ERROR:
            term = terms().get(row.id)
            settings[f"explained_{one.kind}"] = term.says if term else "Not explained."
            if second is not None:
                measures[f"with_term_{one.kind}_bytes"] = _simulated(row, second, one)
    return run(settings, measures, answer.seconds)


def _simulated(row: PublishedRow, answer: Answer, measured: Measurement) -> int:
    rank = answer.ranks[-1] if measured.rank == "last" else answer.busiest
    assert rank is not None
    is_reserved = measured.kind == "reserved"  # no other stream uses a block after it was freed
    return row.workspace_bytes + (rank.reserved_bytes if is_reserved else rank.allocated_bytes)


def _settings(row: PublishedRow) -> dict[str, Setting]:
    source = row.source
    place = f"blob/{source.commit}/{row.path}"  # the file, the pull request or the commit
    if row.path.startswith("pull request "):
        place = f"pull/{row.path.split()[-1]}"
    elif row.path.startswith("the message "):
        place = f"commit/{source.commit}"
    return {
        **row.model_dump(include={"id", "case", "model", "sequence", "microbatch", "global_batch"}),
        **row.strategy.model_dump(include={"sharding", "data", "tensor", "pipeline", "context"}),
        "checkpointing": row.checkpointing,
        "repository": source.repository,
        "where": f"{source.repository}, commit {source.commit[:10]}, {row.path}",
        "url": f"https://github.com/{source.repository}/{place}",
        "num_ranks": row.device.count,
        "device": row.device.name,
    }
