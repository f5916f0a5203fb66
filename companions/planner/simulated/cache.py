"""Answers to questions, simulated in processes of their own or read from a cache. No torch here.

In: questions. Out: a `PlanAnswer` each, in the same order; those that were given before lie in
`.cache/plans`.
"""

import logging
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from importlib import metadata
from pathlib import Path

from proofbook.companions.planner.answers.answer import PlanAnswer
from proofbook.companions.planner.answers.plan_grid import engine_digest
from proofbook.companions.planner.answers.question import PlanError, Question
from proofbook.runners.core.trace.schema import digest_of
from proofbook.runners.simulate.processes import results
from proofbook.runners.traces.files import write

CACHE = Path(".cache/plans")


def answers(questions: Sequence[Question], num_workers: int = 1) -> list[PlanAnswer]:
    """Simulate each question in a process of its own, `num_workers` side by side."""
    return results(_answer, questions, _failed, num_workers, "strategies simulated")


def cached(questions: Sequence[Question], num_workers: int = 1) -> list[PlanAnswer]:
    """As `answers`, kept on disk by question, code, torch; never pass it a model of your own."""
    code = digest_of([engine_digest(), metadata.version("torch")])
    paths = [CACHE / f"{digest_of([code, asked.model_dump_json()])}.json" for asked in questions]
    known = dict(zip(paths, map(_read, paths), strict=True))
    unknown = {path: asked for path, asked in zip(paths, questions, strict=True) if not known[path]}
    for path, simulated in zip(unknown, answers([*unknown.values()], num_workers), strict=True):
        known[path] = simulated
        if simulated.ranks:
            with suppress(OSError):  # without a place for it, the next call simulates again
                write(path, simulated)
    return [answer for path in paths if (answer := known[path])]


def _read(path: Path) -> PlanAnswer | None:
    try:
        return PlanAnswer.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def _failed(question: Question, reason: str) -> PlanAnswer:
    return PlanAnswer(question=question, reason=reason, seconds=0.0)


def _answer(question: Question) -> PlanAnswer:
    """Simulate the ranks of a strategy that differ, in this process."""
    import torch

    from proofbook.companions.planner.simulated.one_rank import simulate_rank
    from proofbook.companions.planner.simulated.own_model import reason_of

    logging.disable()  # torch logs a traceback of what it raises
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start = time.monotonic()
    ranks, reason = [], None
    try:
        question.check_simulation()
        with redirect_stdout(sys.stderr):  # what the user's code prints is no part of the answer
            ranks = [simulate_rank(question, rank) for rank in question.ranks]
    except PlanError as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 whatever the user's code raises
        reason = reason_of(error, question.model.name)
    seconds = round(time.monotonic() - start, 3)
    return PlanAnswer(question=question, ranks=ranks, reason=reason, seconds=seconds)
