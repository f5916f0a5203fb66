"""Simulate strategies in processes of their own, and remember what came of them. No torch here.

In: questions. Out: an `Answer` each, in the same order. An answer is kept under a digest of the
question, of torch's release, and of all code that it follows from. A failure is not kept.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import platform
import resource
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path

from runners.planning import own_code
from runners.planning.answer import Answer
from runners.planning.question import PlanError, Question
from runners.simulate.suite import torch_release
from runners.system import count, stopping
from runners.system.count import Count
from runners.traces.plan_grid import engine_digest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "plans"
KIB = 1 if platform.system() == "Darwin" else 1024  # unit of ru_maxrss, in bytes


class Answered(Answer):
    """An answer as it came now, or as it was kept.

    Where it has failed, `reason` is an error and not what this model or mesh does not allow.
    """

    has_failed: bool = False


def answers(
    questions: Sequence[Question],
    num_workers: int,
    folder: Path = CACHE,
) -> list[Answered]:
    """Answer questions, those that are not known yet in a process each.

    Args:
        questions: what is asked.
        num_workers: processes that simulate side by side.
        folder: where answers are kept.
    """
    kept = {key: _kept(folder, key) for key in map(_key, questions)}
    missing = [one for one in questions if kept[_key(one)] is None]
    for answer in _Answers(missing, num_workers):
        key = _key(answer.question)
        kept[key] = answer
        if answer.reason is None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{key}.json").write_text(answer.model_dump_json(), encoding="utf-8")
    found = [kept[_key(one)] for one in questions]
    return [one for one in found if one is not None]


class _Answers:
    """Answers in the order in which they come."""

    def __init__(self, questions: Sequence[Question], num_workers: int) -> None:
        self._waiting, self._num_workers = list(questions), num_workers
        self._count, self._done = Count(len(questions), "strategies simulated"), 0
        if questions:
            self._count.tell(0)
        self._context = _context() if questions else None

    def __iter__(self) -> _Answers:
        self._running: dict[Connection, tuple[Question, multiprocessing.process.BaseProcess]] = {}
        return self

    def __next__(self) -> Answered:
        while self._waiting and len(self._running) < self._num_workers:
            self._start(self._waiting.pop(0))
        if not self._running:
            self._count.end()
            raise StopIteration
        receiving = self._first()
        question, process = self._running.pop(receiving)
        try:
            answer = Answered.model_validate_json(receiving.recv_bytes())
        except EOFError:
            process.join()
            reason = f"its process ended by itself, with code {process.exitcode}"
            answer = Answered(
                question=question, reason=reason, has_failed=True, seconds=0.0, host_bytes=0
            )
        process.join()
        self._done += 1
        return answer

    def _first(self) -> Connection:
        """The connection of a process that has something to say; waiting is told of."""
        while True:
            self._count.tell(self._done)
            for ready in wait(list(self._running), count.WORD_SECONDS):
                assert isinstance(ready, Connection)
                return ready

    def _start(self, question: Question) -> None:
        assert self._context is not None
        receiving, sending = self._context.Pipe(duplex=False)
        process = self._context.Process(  # type: ignore[attr-defined]
            target=_answer, args=(question.model_dump_json(), sending), daemon=True
        )
        with stopping.held():  # what is raised while a process forks is swallowed
            process.start()
        sending.close()
        self._running[receiving] = question, process


def _context() -> BaseContext:
    """Processes are forked where that is safe: then they share torch, which is loaded once."""
    if platform.system() != "Linux":
        return multiprocessing.get_context("spawn")
    from runners.simulate.worker import prepare

    prepare()
    return multiprocessing.get_context("fork")


def _answer(asked: str, sending: Connection) -> None:
    """Simulate the ranks of a strategy that differ; what a process of its own executes."""
    import torch

    from runners.planning.one_rank import simulate_rank

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # this process is no command, and ends at once
    logging.disable()  # torch logs a traceback of what it raises
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    question = Question.model_validate_json(asked)
    start = time.monotonic()
    ranks, reason, has_failed, loaded = [], None, False, set(sys.modules)
    used: set[str] = set()
    try:
        with redirect_stdout(sys.stderr):  # what the user's code prints is no part of the answer
            ranks = [simulate_rank(question, rank, used=used) for rank in question.ranks]
    except PlanError as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 whatever the user's code raises
        reason = own_code.reason_of(error, question.model.name)
        has_failed = question.model.module is None
    answer = Answered(
        question=question,
        ranks=ranks,
        reason=reason,
        has_failed=has_failed,
        used=sorted(used),
        files={} if question.model.module is None else own_code.digests(loaded),
        seconds=round(time.monotonic() - start, 3),
        host_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
    )
    sending.send_bytes(answer.model_dump_json().encode())


def _key(question: Question) -> str:
    digest = hashlib.sha256(engine_digest().encode())
    digest.update(torch_release().encode())
    digest.update(question.model_dump_json().encode())
    if question.model.module is not None:
        digest.update(repr(list(dict.fromkeys(sys.path))).encode())  # where modules are found
    return digest.hexdigest()


def _kept(folder: Path, key: str) -> Answered | None:
    """An answer that is known, unless a file that it follows from is another one now."""
    try:
        kept = Answered.model_validate_json((folder / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_same = all(own_code.digest_of(file) == known for file, known in kept.files.items())
    return kept if is_same else None
