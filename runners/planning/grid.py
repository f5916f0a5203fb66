"""The committed grid of plans: which states of each preset are simulated, and how a file is made.

In: presets. Out: `planner/plans/<preset>.json`, written once all its rows are there. Answers are
kept as they come, so that an interrupted grid continues where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from runners.planning.answer import Answer
from runners.planning.processes import answers, answers_anew
from runners.planning.question import Model, PlanError, Question, Training, strategy_of
from runners.plans.model_presets import ModelPreset, model_presets
from runners.traces.digest import ROOT
from runners.traces.files import read_grid, write_rows
from runners.traces.plan_grid import (
    FOLDER,
    Confirmed,
    Grid,
    GridRank,
    GridRow,
    LeftOut,
    State,
    as_trace,
    code_digest,
    experiment_of,
    made_here,
    now,
    run_name,
)
from runners.traces.records import Run

PLANS = ROOT / "content" / FOLDER
STRATEGIES = {
    1: ("single",),
    8: ("single", "ddp", "zero1", "fsdp", "fsdp-keep", "tp-sp", "gpipe", "1f1b",
        "fsdp.4+tp-sp.2", "1f1b.4+zero1.2"),
    64: ("ddp", "zero1", "fsdp", "fsdp-keep", "fsdp.8+tp-sp.8", "1f1b.8+zero1.8",
         "1f1b.8+tp-sp.8"),
    512: ("fsdp", "fsdp-keep", "fsdp.64+tp-sp.8", "1f1b.8+zero1.8+tp-sp.8"),
}  # fmt: skip
NAMED = {"llama-70b": ("gpipe.8+tp-sp.8", "interleaved.8+tp-sp.8")}  # in the usual state
EACH = 7  # of a grid's rows, one in so many is simulated again to confirm it


class Plan(NamedTuple):
    """What is simulated of a preset: states, the usual one first, each as its fields."""

    microbatch: int
    sequence: int
    devices: int
    others: tuple[dict[str, object], ...]

    @property
    def states(self) -> list[State]:
        """All of them, whole."""
        usual = State(devices=self.devices, sequence=self.sequence)
        return [usual, *(usual.model_copy(update=other) for other in self.others)]


_CHECKPOINTED: dict[str, object] = {"checkpointing": "all"}
GRIDS = {
    "gpt2-124m": Plan(8, 1024, 8, (
        _CHECKPOINTED, {"precision": "fp32"}, {"precision": "autocast"}, {"optimizer": "sgd"},
        {"optimizer": "adam8bit"}, {"sequence": 512}, {"devices": 1},
    )),
    "gpt2-1.5b": Plan(4, 1024, 8, (_CHECKPOINTED,)),
    "llama-1b": Plan(1, 4096, 8, (_CHECKPOINTED,)),
    "llama-8b": Plan(1, 4096, 8, (
        _CHECKPOINTED, {"precision": "fp32"}, {"devices": 64}, {"devices": 64, **_CHECKPOINTED},
        {"optimizer": "sgd"}, {"sequence": 8192, **_CHECKPOINTED},
    )),
    "mixtral-8x7b": Plan(1, 4096, 64, ()),
    "llama-70b": Plan(1, 4096, 64, (_CHECKPOINTED,)),
}  # fmt: skip


def questions(preset: ModelPreset) -> Iterator[tuple[State, Question]]:
    """Everything that the grid of a preset asks, possible or not."""
    microbatch = GRIDS[preset.id].microbatch
    model = Model(name=preset.id, architecture=preset.architecture)
    for state in GRIDS[preset.id].states:
        fields = state.model_dump(exclude={"devices"}) | {"microbatch": microbatch}
        training = Training.model_validate({**fields, "global_batch": microbatch * state.devices})
        named = NAMED.get(preset.id, ()) if state == GRIDS[preset.id].states[0] else ()
        for name in (*STRATEGIES[state.devices], *named):
            strategy = strategy_of(name, state.devices)
            yield state, Question(model=model, training=training, strategy=strategy)


def make(preset: str, num_workers: int, folder: Path = PLANS, cache: Path | None = None) -> Grid:
    """Simulate what the grid of a preset lacks, and write the file.

    Args:
        preset: the model's.
        num_workers: processes that simulate side by side.
        folder: where the file stands.
        cache: where answers are kept, until all are there.

    Raises:
        PlanError: there is no grid of this preset, every row was left out, or one failed.
        OSError: the disk refused; the former file stays.
    """
    possible, left_out = [], []
    for state, question in questions(_preset(preset)):
        try:
            question.check()
            possible.append((state, question))
        except PlanError as error:
            left_out.append(_left_out(state, question, str(error)))
    found = answers([question for _, question in possible], num_workers, cache)
    rows = []
    for (state, question), answer in zip(possible, found, strict=True):
        if answer.has_failed:
            raise PlanError(f"{preset}: {question.strategy.name}: {answer.reason}")
        if answer.reason is None:
            rows.append(_row(state, answer))
        else:
            left_out.append(_left_out(state, question, answer.reason))
    if not rows:
        raise PlanError(f"{preset}: {left_out[0].reason}")
    grid = _grid(_preset(preset), rows, left_out)
    write_rows(folder / f"{preset}.json", grid)
    return grid


def confirm(preset: str, num_workers: int, folder: Path = PLANS, cache: Path | None = None) -> Grid:
    """Simulate some rows of a grid again; where all come out equal, it is one of today's code.

    Args: as `make` has them.

    Raises:
        PlanError: a row came out otherwise, or what is asked has changed.
        TraceError: the file is no grid.
    """
    by_row = {(state, asked.strategy.name): asked for state, asked in questions(_preset(preset))}
    grid = read_grid(folder / f"{preset}.json")
    if any((one.state, one.strategy) not in by_row for one in grid.rows):
        raise PlanError(f"{preset}: the grid asks for other rows now; make it again")
    chosen = grid.rows[::EACH]
    found = answers([by_row[one.state, one.strategy] for one in chosen], num_workers, cache)
    for row, answer in zip(chosen, found, strict=True):
        if answer.reason or _row(row.state, answer).ranks != row.ranks:
            why = answer.reason or "came out otherwise"
            raise PlanError(f"{preset}: {row.strategy} on {row.state.devices} {why}; make it again")
    again = Confirmed(code_was=grid.code, num_rows=len(chosen), at=now())
    kept = grid.model_copy(
        update={"code": code_digest(preset), "confirmed": [*grid.confirmed, again]}
    )
    write_rows(folder / f"{preset}.json", kept)
    return kept


def again(experiment: str, names: Sequence[str]) -> dict[str, Run]:
    """Rows of a grid simulated anew, as runs by their names.

    Raises:
        PlanError: the grid asks for no such row any more, or it cannot be simulated now.
    """
    preset = _preset(next(name for name in GRIDS if experiment_of(name) == experiment))
    known = {
        run_name(question.strategy.name, state, GRIDS[preset.id].sequence): (state, question)
        for state, question in questions(preset)
    }
    gone = [name for name in names if name not in known]
    if gone:
        raise PlanError(f"the grid of {preset.id} asks for no {gone[0]!r} any more")
    found = answers_anew([known[name][1] for name in names])
    failed = [one for one in found if one.reason]
    if failed:
        raise PlanError(f"{failed[0].question.strategy.name}: {failed[0].reason}")
    rows = [_row(known[name][0], one) for name, one in zip(names, found, strict=True)]
    return as_trace(_grid(preset, rows, [])).runs


def main(preset: str | None, *, confirms: bool) -> Iterator[str]:
    """Make or confirm the grid of one preset, or of all; a line for each.

    Raises:
        PlanError: it cannot be done, in one line.
    """
    for name in [preset] if preset else list(GRIDS):
        grid = (confirm if confirms else make)(name, 1)
        yield f"{name}: {len(grid.rows)} rows, {len(grid.left_out)} left out, code {grid.code}"


def _preset(name: str) -> ModelPreset:
    if name not in GRIDS:
        raise PlanError(f"no grid of {name!r}; there are: {', '.join(GRIDS)}")
    return model_presets()[name]


def _grid(preset: ModelPreset, rows: list[GridRow], left_out: Sequence[LeftOut]) -> Grid:
    plan = GRIDS[preset.id]
    return Grid(
        **made_here(rows, code_digest(preset.id)),
        preset=preset.id,
        title=preset.title,
        base_sequence=plan.sequence,
        microbatch=plan.microbatch,
        num_parameters=preset.architecture.num_parameters,
        architecture=preset.architecture.model_dump(mode="json"),
        left_out=list(left_out),
    )


def _left_out(state: State, question: Question, reason: str) -> LeftOut:
    name = question.strategy.name
    return LeftOut(strategy=name, state=state, reason=reason.removeprefix(f"{name}: "))


def _row(state: State, answer: Answer) -> GridRow:
    question, fields = answer.question, set(GridRank.model_fields)
    return GridRow(
        strategy=question.strategy.name,
        state=state,
        global_batch=question.training.global_batch,
        num_microbatches=question.num_microbatches,
        ranks=[GridRank(**one.model_dump(include=fields)) for one in answer.ranks],
        seconds=answer.seconds,
    )
