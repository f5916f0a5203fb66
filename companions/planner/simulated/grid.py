"""The committed grid of plans: which states of each preset are simulated, and how a file is made.

In: presets. Out: `planner/plans/<preset>.json`, written once all its rows are there.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from proofbook.companions.planner.answers.answer import question_of
from proofbook.companions.planner.answers.architecture import ModelPreset, model_presets
from proofbook.companions.planner.answers.plan_grid import (
    FOLDER,
    Grid,
    GridRow,
    GridState,
    as_trace,
    code_digest,
    experiment_of,
    made_here,
    read_grid,
    run_name,
)
from proofbook.companions.planner.answers.question import (
    PlanError,
    PlannedModel,
    Question,
    strategy_of,
)
from proofbook.companions.planner.answers.search import microbatch_of
from proofbook.companions.planner.simulated.cache import answers
from proofbook.runners.core.trace.machine import num_cores
from proofbook.runners.core.trace.records import Run
from proofbook.runners.system.book import ROOT
from proofbook.runners.system.errors import unknown
from proofbook.runners.traces.files import TraceError, write

PLANS = ROOT / "content" / FOLDER
STRATEGIES = {
    1: ("single",),
    8: ("ddp-view", "zero1", "fsdp", "fsdp-keep", "tp-sp", "1f1b", "fsdp.4+tp-sp.2",
        "1f1b.4+zero1.2"),
    16: ("ddp-view", "zero1", "fsdp", "fsdp-keep", "hsdp.2.8", "fsdp.8+tp-sp.2",
         "fsdp.2+tp-sp.8", "1f1b.2+zero1.8", "1f1b.2+tp-sp.8"),
    64: ("ddp-view", "zero1", "fsdp", "fsdp-keep", "hsdp.8.8", "fsdp.8+tp-sp.8",
         "1f1b.8+zero1.8", "1f1b.8+tp-sp.8"),
}  # fmt: skip
CHECKPOINTING = ("none", "all")
# Beside these, with the microbatch of the preset: what lessons name and compare.
NAMED = {8: ("single", "ddp", "tp-sp", "gpipe", "fsdp.4+tp-sp.2"), 64: ("ddp", "fsdp.8+tp-sp.8")}
SAME = "the same"
EACH = 7  # of a grid's rows, one in so many is simulated again to confirm it


Key = tuple[str, GridState]  # of a row: its strategy, and where
Fields = dict[str, object]  # of a state


class GridSpec(NamedTuple):
    """The rows that are simulated of a preset."""

    microbatch: int  # samples, of which a strategy takes more as the search does
    sequence: int  # tokens of a sample
    # devices, and where they are not usual the optimizer and the sequence. Each has all
    # `STRATEGIES`, with and without checkpointing; the pages show the first one first
    states: tuple[Fields, ...]
    # strategies with fields of their states, which lessons name as well
    named: tuple[tuple[str, Fields], ...] = ()

    def state(self, **fields: object) -> GridState:
        """The usual state of the grid with other fields."""
        usual = {"microbatch": self.microbatch, "sequence": self.sequence}
        return GridState.model_validate(usual | fields)


_EIGHT: Fields = {"devices": 8}
_SIXTEEN: Fields = {"devices": 16}
_ALL: Fields = {"devices": 64}
_INT8: Fields = {"optimizer": "adam8bit"}
GRIDS = {
    "gpt2-124m": GridSpec(8, 1024, (_EIGHT, _EIGHT | _INT8, {"devices": 1})),
    "gpt2-1.5b": GridSpec(4, 1024, (_EIGHT, _EIGHT | _INT8, _SIXTEEN)),
    "llama-1b": GridSpec(1, 4096, (_EIGHT, _EIGHT | _INT8)),
    "llama-8b": GridSpec(1, 4096, (
        _EIGHT, _EIGHT | _INT8, _EIGHT | {"sequence": 8192}, _SIXTEEN, _SIXTEEN | _INT8, _ALL,
    ), (("single", _EIGHT | {"optimizer": "sgd"}),)),
    "llama-13b": GridSpec(1, 4096, (_SIXTEEN, _EIGHT)),
    "mixtral-8x7b": GridSpec(1, 4096, (_ALL, _SIXTEEN | _INT8), tuple(
        (name, _ALL | {"checkpointing": how})
        for name in ("zero1.64+ep.8", "fsdp.64+ep.8", "1f1b.4+zero1.16+ep.8")
        for how in CHECKPOINTING
    )),
    "llama-70b": GridSpec(1, 4096, (_ALL, _SIXTEEN | _INT8), (
        ("gpipe.8+tp-sp.8", _ALL), ("interleaved.8+tp-sp.8", _ALL),
    )),
}  # fmt: skip


def questions(preset: ModelPreset) -> Iterator[tuple[Key, Question]]:
    """Yield pairs of key (strategy, state) and question of a preset's grid, of possible meshes."""
    plan = GRIDS[preset.id]
    model = PlannedModel(name=preset.id, architecture=preset.architecture)
    for name, state in dict.fromkeys(_rows(plan)):
        question = question_of(model, name, state, plan.microbatch * state.devices)
        try:
            question.check_simulation()
        except PlanError:
            continue
        yield (name, state), question


def _rows(plan: GridSpec) -> Iterator[Key]:
    """Every strategy of every state, then those that lessons name."""
    for fields, checkpointing in product(plan.states, CHECKPOINTING):
        state = plan.state(**fields, checkpointing=checkpointing)
        for name in STRATEGIES[state.devices]:
            samples = microbatch_of(strategy_of(name, state.devices), plan.microbatch)
            yield name, state.model_copy(update={"microbatch": samples})
        for name in NAMED.get(state.devices, ()) if len(fields) == 1 else ():
            yield name, state
    for name, fields in plan.named:
        yield name, plan.state(**fields)


def check(preset: str, *, is_writing: bool) -> str:
    """Simulate every `EACH`-th row again; return in words if the grid holds, and write if asked.

    Where they come out equal the others are of today's code, too, and writing keeps them and
    simulates those that are missing; else it simulates all rows anew. A run that is stopped, or a
    PlanError, leaves the former file.
    """
    path, asked = PLANS / f"{preset}.json", dict(questions(_preset(preset)))
    try:
        grid = read_grid(path)
        known = {key: row for row in grid.rows if (key := (row.strategy, row.state)) in asked}
        is_same = [*known] == [*asked] and grid.code == code_digest(experiment_of(preset))
    except TraceError:
        known, is_same = {}, False
    chosen = {key: known[key].ranks for key in [*known][::EACH]}
    again = _simulated({key: asked[key] for key in chosen}, num_cores())
    if [row.ranks for row in again] != [*chosen.values()]:
        known, is_same = {}, False
    if is_writing and not is_same:
        missing = {key: asked[key] for key in asked if key not in known}
        known |= zip(missing, _simulated(missing, num_cores()), strict=True)
        write(path, _grid(preset, [known[key] for key in asked]))
    return outcome_words(is_same=is_same, is_writing=is_writing)


def outcome_words(*, is_same: bool, is_writing: bool) -> str:
    """The outcome of checking a committed file, in words."""
    return SAME if is_same else "written" if is_writing else "differs; --write makes it anew"


def simulate_again(experiment: str, names: Sequence[str]) -> dict[str, Run]:
    """Simulate rows of a grid anew: runs by name; a PlanError where a row is gone, or fails."""
    preset = next(name for name in GRIDS if experiment_of(name) == experiment)
    plan = GRIDS[preset]
    known = {
        run_name(*key, plan.sequence, plan.microbatch): (key, question)
        for key, question in questions(_preset(preset))
    }
    if gone := [name for name in names if name not in known]:
        raise PlanError(f"the grid of {preset} asks for no {gone[0]!r} any more")
    rows = _simulated(dict(known[name] for name in names), num_workers=1)
    return as_trace(_grid(preset, rows)).runs


def _preset(name: str) -> ModelPreset:
    if name not in GRIDS:
        raise unknown("grid", name, GRIDS)
    return model_presets()[name]


def _simulated(asked: dict[Key, Question], num_workers: int) -> list[GridRow]:
    """Simulate questions, as rows of a grid; a PlanError where one has none."""
    rows = []
    for (name, state), answer in zip(asked, answers([*asked.values()], num_workers), strict=True):
        question = answer.question
        if answer.reason is not None:
            raise PlanError(f"{question.model.name}: {name}: {answer.reason}")
        row = GridRow(
            strategy=name,
            state=state,
            global_batch=question.training.global_batch,
            num_microbatches=question.num_microbatches,
            ranks=answer.ranks,
            seconds=answer.seconds,
        )
        rows.append(row)
    return rows


def _grid(name: str, rows: list[GridRow]) -> Grid:
    plan, preset = GRIDS[name], _preset(name)
    return Grid(
        **made_here(code_digest(experiment_of(name))),
        rows=rows,
        preset=name,
        title=preset.title,
        base_sequence=plan.sequence,
        microbatch=plan.microbatch,
        num_parameters=preset.architecture.num_parameters,
        architecture=preset.architecture.model_dump(mode="json"),
    )
