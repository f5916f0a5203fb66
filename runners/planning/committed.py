"""Committed rows as the answers that they were, for whoever recommends a layout. No torch.

In: a grid of one model. Out: an `Answer` for each row, by the name of its run, and the mesh that
devices form. So pages and the command share one recommendation.
"""

from __future__ import annotations

from runners.planning.answer import Answer, RankPlan
from runners.planning.question import Model, Question, Training, strategy_of
from runners.plans.architecture import Architecture
from runners.traces.plan_grid import Grid, State, named_rows

PER_NODE = 8


def mesh_of(devices: int) -> tuple[int, int]:
    """The nodes that so many devices fill, and the devices of each."""
    per_node = min(devices, PER_NODE)
    return devices // per_node, per_node


def question_of(model: Model, strategy: str, state: State, global_batch: int) -> Question:
    """What a row of a grid asked.

    Raises:
        PlanError: the state's devices do not form such a strategy.
    """
    settings = state.model_dump(exclude={"devices"})
    training = Training.model_validate({**settings, "global_batch": global_batch})
    return Question(model=model, training=training, strategy=strategy_of(strategy, state.devices))


def answers_of(grid: Grid) -> dict[str, Answer]:
    """Every row as an answer, by the name of its run."""
    model = Model(name=grid.preset, architecture=Architecture.model_validate(grid.architecture))
    return {
        name: Answer(
            question=question_of(model, row.strategy, row.state, row.global_batch),
            ranks=[RankPlan(**rank.model_dump()) for rank in row.ranks],
            seconds=row.seconds,
        )
        for name, row in named_rows(grid).items()
    }
