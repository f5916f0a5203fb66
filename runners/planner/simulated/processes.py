"""Strategies simulated in processes of their own. No torch here.

In: questions. Out: an `Answer` each, in the same order.
"""

import logging
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial

from runners.planner.answers.answer import Answer
from runners.planner.answers.question import Implementation, PlanError, Question
from runners.simulate.processes import Job, results


def answers(
    questions: Sequence[Question], num_workers: int = 1, how: Implementation | None = None
) -> list[Answer]:
    """Answer questions, in a process each, so many side by side; of another implementation."""
    if how is not None:
        questions = [one.model_copy(update={"implementation": how}) for one in questions]
    jobs = [Job(partial(_answer, one), partial(_failed, one)) for one in questions]
    return results(jobs, num_workers, "strategies simulated")


def _failed(question: Question, reason: str) -> Answer:
    return Answer(question=question, reason=reason, has_failed=True, seconds=0.0)


def _answer(question: Question) -> Answer:
    """Simulate the ranks of a strategy that differ; what a process of its own executes."""
    import torch

    from runners.planner.simulated.one_rank import simulate_rank
    from runners.planner.simulated.own_model import reason_of

    logging.disable()  # torch logs a traceback of what it raises
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start = time.monotonic()
    ranks, reason, has_failed = [], None, False
    try:
        with redirect_stdout(sys.stderr):  # what the user's code prints is no part of the answer
            ranks = [simulate_rank(question, rank) for rank in question.ranks]
    except PlanError as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 whatever the user's code raises
        reason = reason_of(error, question.model.name)
        has_failed = question.model.module is None
    return Answer(
        question=question,
        ranks=ranks,
        reason=reason,
        seconds=round(time.monotonic() - start, 3),
        has_failed=has_failed,
    )
