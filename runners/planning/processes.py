"""Strategies simulated in processes of their own. No torch here.

In: questions. Out: an `Answer` each, in the same order. An answer is kept under a digest of the
question, of torch's release, and of all code that it follows from; that to a user's model is not.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import closing, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from runners.planning import own_code
from runners.planning.answer import Answer
from runners.planning.question import PlanError, Question
from runners.simulate.processes import Job, finished, torch_release
from runners.traces.files import write_json
from runners.traces.machine import HOME
from runners.traces.plan_grid import engine_digest

CACHE = HOME / ".cache" / "simulations"


def answers(
    questions: Sequence[Question], num_workers: int, folder: Path | None = None
) -> list[Answer]:
    """Answer questions, those that are not known yet in a process each.

    Args:
        questions: what is asked.
        num_workers: processes that simulate side by side.
        folder: where answers are kept.
    """
    folder = folder or CACHE
    paths = [folder / f"{_key(one)}.json" for one in questions]
    known = {path: _kept(path) for path in paths}
    jobs = {
        path: Job(partial(_answer, one), partial(_failed, one))
        for path, one in zip(paths, questions, strict=True)
        if known[path] is None
    }
    with closing(finished(jobs, num_workers, "strategies simulated")) as found:
        for path, answer in found:
            known[path] = answer
            if answer.reason is None and answer.question.model.module is None:
                folder.mkdir(parents=True, exist_ok=True)
                write_json(path, answer.as_json())
    return [one for path in paths if (one := known[path]) is not None]


def _kept(path: Path) -> Answer | None:
    """What was simulated before; nothing where the file is of another version or torn."""
    try:
        return Answer.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def answers_anew(questions: Sequence[Question]) -> list[Answer]:
    """Answer questions, whatever is known of them."""
    with TemporaryDirectory() as folder:
        return answers(questions, 1, Path(folder))


def _failed(question: Question, reason: str) -> Answer:
    return Answer(question=question, reason=reason, has_failed=True, seconds=0.0)


def _answer(question: Question) -> Answer:
    """Simulate the ranks of a strategy that differ; what a process of its own executes."""
    import torch

    from runners.planning.one_rank import simulate_rank

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
        reason = own_code.reason_of(error, question.model.name)
        has_failed = question.model.module is None
    return Answer(
        question=question,
        ranks=ranks,
        reason=reason,
        seconds=round(time.monotonic() - start, 3),
        has_failed=has_failed,
    )


def _key(question: Question) -> str:
    digest = hashlib.sha256(engine_digest().encode())
    digest.update(torch_release().encode())
    digest.update(question.model_dump_json().encode())
    return digest.hexdigest()
