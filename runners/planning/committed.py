"""Committed rows as the answers that they were, for whoever recommends a layout. No torch.

In: a grid of one model. Out: an `Answer` for each row, by the name of its run. So pages and the
command share one recommendation.
"""

from __future__ import annotations

from runners.planning.answer import Answer
from runners.planning.question import Model, Question, Training, strategy_of
from runners.plans.architecture import Architecture
from runners.traces.plan_grid import Grid, GridRow, State, named_rows


def question_of(model: Model, strategy: str, state: State, global_batch: int) -> Question:
    """What a row of a grid asked.

    Raises:
        PlanError: the state's devices do not form such a strategy.
    """
    settings = state.model_dump(exclude={"devices"})
    training = Training.model_validate({**settings, "global_batch": global_batch})
    return Question(model=model, training=training, strategy=strategy_of(strategy, state.devices))


def answer_of(row: GridRow, grid: Grid) -> Answer:
    """The answer that a row was made of."""
    model = Model(name=grid.preset, architecture=Architecture.model_validate(grid.architecture))
    return Answer(
        question=question_of(model, row.strategy, row.state, row.global_batch),
        ranks=row.ranks,
        seconds=row.seconds,
    )


def rivals(name: str, grid: Grid) -> dict[str, GridRow]:
    """Rows by the names of their runs that do the same training on as many devices.

    They differ in their strategy, in what they recompute, and in the size of a microbatch.
    """
    by_name, free = named_rows(grid), {"checkpointing": "", "microbatch": 0}
    mine = by_name[name]
    same = mine.state.model_copy(update=free)
    return {
        other: one
        for other, one in by_name.items()
        if one.state.model_copy(update=free) == same and one.global_batch == mine.global_batch
    }


def answers_of(grid: Grid) -> dict[str, Answer]:
    """Every row as an answer, by the name of its run."""
    return {name: answer_of(row, grid) for name, row in named_rows(grid).items()}
