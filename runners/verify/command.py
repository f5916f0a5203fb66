"""Watch a training script under torchrun: is its update that of one process?

    torchrun --nproc-per-node 4 -m runners.verify train.py --its arguments
    python -m runners verify --ranks 4 train.py --its arguments

Exit codes: 0 forward, weights of the loss, gradients and update all agree; 1 findings; 2 a wrong
call; 3 something was not compared. `torchrun` makes 1 of each: there the last line has the word.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import runpy
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from runners.system import processes
from runners.system.errors import FixableError, first_line
from runners.system.patience import say
from runners.traces import machine
from runners.verify import compare, keep, report, rerun
from runners.verify.against import Against
from runners.verify.exchange import Board, GoneError, environment, free_port, shared_folder, sweep
from runners.verify.frames import is_script, place
from runners.verify.hangs import RECORDED, Lookout
from runners.verify.layout import Layout, layouts
from runners.verify.records import Seen
from runners.verify.replay import Replayed, replayed
from runners.verify.rerun import Loaders
from runners.verify.trace import SUFFIX
from runners.verify.verdict import Finding, Verdict
from runners.verify.watch import Enough, Watch

MOST_RANKS = 64
KILLED_SECONDS = 20.0
MEMORY_SHARE = 0.8  # of what the host has left
# What errors of torch say, and the cause.
_ERRORS = (
    ("Expected to have finished reduction", "unused parameters"),
    ("mark a variable ready only once", "ready twice"),
)
BYTES_PER_ELEMENT = 8 * 3 + 4 * 2  # float64 parameter, gradient and sum, and both in fp32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "--ranks", type=int, default=0, help="start so many ranks (not under torchrun)"
    )
    parser.add_argument("--steps", type=int, default=3, help="updates that are watched (3)")
    parser.add_argument("--seconds", type=float, default=10.0,
                        help="how long the script goes on after these updates (10)")  # fmt: skip
    parser.add_argument("--patience", type=float, default=10.0,
                        help="seconds without work after which ranks hang (10)")  # fmt: skip
    parser.add_argument("--against", metavar="MODULE:FUNCTION",
                        help="returns the module that ranks divide by hand")  # fmt: skip
    parser.add_argument("--split", metavar="NAME=DIM[/BLOCKS]", action="append", default=[],
                        help="how ranks split a parameter of it, or its inputs")  # fmt: skip
    parser.add_argument(
        "--one",
        action="store_true",
        help="run the script again as one process that has all batches",
    )
    parser.add_argument("--as-one", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print all of the report as JSON")
    parser.add_argument("script", help="a training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")


def main(arguments: argparse.Namespace) -> int:
    """Start ranks, or be one."""
    script = Path(arguments.script)
    if not script.is_file():
        raise FixableError(f"there is no script {script}")
    if arguments.steps < 1:
        raise FixableError(f"--steps must be at least 1, not {arguments.steps}")
    if arguments.split and not arguments.against:
        raise FixableError("--split needs --against")
    against = arguments.against and Against(arguments.against, arguments.split, script)
    if arguments.as_one:
        return _alone(arguments)
    if "RANK" in os.environ and not arguments.ranks:
        return _Rank(arguments, against).run()
    if not 2 <= arguments.ranks <= MOST_RANKS:
        raise FixableError(
            f"--ranks must be from 2 to {MOST_RANKS}, and stands before the script; without it, "
            "start this under torchrun"
        )
    return _launched(arguments)


def _typed(arguments: argparse.Namespace) -> list[str]:
    """The options of a run, but for those at their defaults, and the script."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = {name: getattr(arguments, name) for name in ("steps", "seconds", "patience", "against")}
    options = [f"--{name}={one}" for name, one in given.items() if one != parser.get_default(name)]
    options += [f"--split={one}" for one in arguments.split] + ["--one"] * arguments.one
    return [*options, str(arguments.script)]


def _launched(arguments: argparse.Namespace) -> int:
    """Start the ranks on this host, and return rank 0's exit code."""
    words = [sys.executable, "-m", "runners.verify", *["--json"] * arguments.json]
    words += [*_typed(arguments), *arguments.arguments]
    port, common = free_port(), {"OMP_NUM_THREADS": "1", **os.environ}
    root = str(Path(__file__).parents[2])
    common["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    started = []
    try:
        for rank in range(arguments.ranks):
            own = common | environment(rank, arguments.ranks, port)
            started.append(subprocess.Popen(words, env=own))
        codes = _followed(started)
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.wait()
        sweep()
    return codes[0] if codes[0] in report.WORDS else 1


def _followed(started: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """The exit codes; where a rank was killed, the others get a moment to notice and report it."""
    end: float | None = None
    while any(one.poll() is None for one in started):
        time.sleep(0.02)
        killed = [rank for rank, one in enumerate(started) if (one.poll() or 0) < 0]
        end = end or (time.monotonic() + KILLED_SECONDS if killed else None)
        if end is not None and time.monotonic() > end:
            say(f"verify: differs (rank {killed[0]} was killed; all others are ended)")
            return [1] * len(started)
    return [one.wait() for one in started]


def _alone(arguments: argparse.Namespace) -> int:
    """Be the one process that is given the batches of all ranks."""
    processes.end_with(os.getppid())
    file = Path(arguments.as_one)
    order: rerun.Order = torch.load(file, weights_only=False)
    watch = Watch(order.steps, lambda _, is_finished: is_finished)
    given = rerun.Given(order, watch)
    seen = _watched(arguments, watch)
    torch.save(
        rerun.Rerun(given.gradients(seen), seen.broken or seen.ended), file.with_suffix(".done")
    )
    os._exit(0)


def _watched(
    arguments: argparse.Namespace, watch: Watch, is_reported: Callable[[], bool] = lambda: False
) -> Seen:
    """Run the script as Python would; what was recorded, and how it ended."""
    script = arguments.script
    sys.argv = [script, *arguments.arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    watch.install()
    ended, at = "", ""
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        pass
    except SystemExit as left:
        ended = "" if left.code in (None, 0) else f"it left with exit code {left.code}"
    except BaseException as error:  # noqa: BLE001 whatever ends the script is reported
        if not is_reported():
            traceback.print_exc()
        ended = f"{type(error).__name__}: {first_line(error)}"
        at = _place_in(error)
    _end_as_python_does()
    seen = watch.end()
    seen.ended, seen.ended_at = ended, at
    return seen


class _Rank:
    """One rank: the script, then the replay, and on rank 0 the report."""

    def __init__(self, arguments: argparse.Namespace, against: Against | None) -> None:
        self.arguments, self.against = arguments, against
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size))
        if local != self.world_size:
            raise FixableError("all ranks must run on one host: a script on 2 to 8 ranks shows it")
        os.environ |= {k: v for k, v in RECORDED.items() if k not in os.environ}
        self.launcher = os.getppid()
        processes.end_with(self.launcher)
        if self.rank == 0:
            sweep()
        self.board = Board(self.rank, self.world_size, shared_folder())
        self.finished_at: float | None = None
        self.output = sys.stdout
        if arguments.json:  # what the script prints must not stand in it
            self.output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self.script = Path(arguments.script).resolve()  # it may change the folder
        self.layouts: Sequence[Layout] = ()  # once all ranks have recorded
        self.watch = Watch(arguments.steps, self._asks_to_stop)
        self.watch.is_shared = against is not None
        self.loaders = Loaders(None, lambda: self.watch.is_on)
        if arguments.one:
            self.loaders.install()

    def run(self) -> NoReturn:
        """Run the script, and end this process with the exit code."""
        lookout = Lookout(self.board, self.arguments.patience, place, self._hung)
        lookout.start()
        code = 1
        try:
            self.seen = _watched(self.arguments, self.watch, self._has_code)
            lookout.stop()
            code = self._judged()
        except FixableError as error:
            code = said_wrong(error) if self._speaks() else error.exit_code
        except GoneError as gone:
            verdict = Verdict([Finding("script failed", str(gone))])
            code = self._said(verdict) if self._speaks() and not self._has_code() else 1
        except BaseException:  # noqa: BLE001 a fault of ours must not look like an agreement
            traceback.print_exc()
        self._leave(code)

    def _asks_to_stop(self, count: int, is_finished: bool) -> bool:
        """Whether the script has shown enough: rank 0 decides, a step ahead of all."""
        file = self.board.folder / "stop"
        if self.rank == 0 and is_finished and not file.exists():
            self.finished_at = self.finished_at or time.monotonic()
            if time.monotonic() - self.finished_at > self.arguments.seconds:
                part = file.with_suffix(".part")
                part.write_text(str(count + 2), encoding="ascii")
                part.rename(file)
        return is_finished and file.exists() and count >= int(file.read_text(encoding="ascii"))

    def _judged(self) -> int:
        if self.arguments.one:
            self.board.post("batches", self.loaders.batches)
            self.board.post("inputs", rerun.inputs_of(self.seen))
        self.board.post("seen", self.seen)
        everything = self.board.gather("seen") | {self.rank: self.seen}
        is_broken = any(one.broken for one in everything.values())
        if self.against and not is_broken:
            self.against.divide(everything)
        found = [] if is_broken else layouts(everything)
        self._check_memory(found)
        self.board.post("replayed", self._replays(found))
        if not self._speaks():
            while not self._has_code() and self.board.lives(0):
                time.sleep(0.02)
            return self._code()
        self.layouts = found
        verdict = compare.judged(found, everything, self.board.gather("replayed"))
        self._ended(verdict, everything)
        verdict.notes[:0] = [self.against.says] if self.against and self.against.says else []
        if self.arguments.one and found and not verdict.findings:
            self._as_one(verdict, found, everything)
        return self._said(verdict)

    def _as_one(
        self, verdict: Verdict, found: Sequence[Layout], everything: dict[int, Seen]
    ) -> None:
        """Run the script as one process, and compare; what agrees there needs no other proof."""
        batches, inputs = self.board.gather("batches"), self.board.gather("inputs")
        order = rerun.order(found, self._modules(), batches, inputs, everything)
        if isinstance(order, str):
            verdict.skip(f"as one process: {order}")
            return
        file = self.board.folder / "order.pt"
        torch.save(order, file)
        found_alone = rerun.run(file, self.arguments.script, self.arguments.arguments)
        if rerun.compare(verdict, found, found_alone):
            verdict.proven("run again as one process, the script makes the same gradients")
            for cut in dict.fromkeys(cut for one in everything.values() for cut in one.cuts):
                verdict.skip(
                    f"{cut} passes no gradient on to what it sends, here as in one process"
                )

    def _ended(self, verdict: Verdict, everything: dict[int, Seen]) -> None:
        for rank, seen in everything.items():
            if seen.ended:
                cause = next((key for text, key in _ERRORS if text in seen.ended), "script failed")
                verdict.findings.insert(0, Finding(cause, seen.ended, seen.ended_at, rank=rank))
                break

    def _check_memory(self, found: Sequence[Layout]) -> None:
        """Say what the replay needs, and refuse where the host has not got it."""
        updates = [update for one in found for update in one.first.updates[:1]]
        shapes = [one.shape for update in updates for one in update.parameters.values()]
        elements = sum(torch.Size(shape).numel() for shape in shapes)
        needed = elements * BYTES_PER_ELEMENT * self.world_size
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if self._speaks() and needed > free // 100:
            say(f"verify: the replay needs about {needed / 2**20:,.0f} MiB besides activations")
        if needed > MEMORY_SHARE * free:
            raise FixableError(
                f"the replay needs {needed / 2**30:.1f} GiB, and the host has {free / 2**30:.1f}: "
                "shorten the model (fewer layers)"
            )

    def _replays(self, found: Sequence[Layout]) -> dict[str, list[Replayed]]:
        return {
            layout.key: [self._replayed(layout, number) for number in range(layout.num_updates)]
            for layout in found
            if self.rank in layout.leaders
            and not any(one.refused for one in layout.records.values())
        }

    def _replayed(self, layout: Layout, number: int) -> Replayed:
        record = self.seen.roots[layout.key]
        source = self.rank if record.buffers_from is None else record.buffers_from
        parameters: Any = layout.whole(number, self.rank, "parameters")
        buffers: Any = layout.whole(number, source, "buffers")
        if self.against and layout.key in self.against.modules:
            return self.against.replayed(layout, number, self.rank, parameters, buffers)
        own = record.updates[number]
        whole = layout.passes(number, self.rank, own.forwards)
        return replayed(self._modules()[layout.key], parameters, buffers, whole, own.frozen)

    def _modules(self) -> dict[str, nn.Module]:
        return {root.record.key: root.module for root in self.watch.roots.values()}

    # The end

    def _speaks(self) -> bool:
        return self.rank == 0

    def _said(self, verdict: Verdict) -> int:
        script = Path(self.arguments.script).name
        document = report.document(verdict, script, self.world_size)
        text = "\n".join(report.lines(verdict, script, self.world_size))
        text_or_json = report.as_json(document) if self.arguments.json else text
        print(text_or_json, file=self.output, flush=True)
        self._keep(verdict, document, text)
        return verdict.exit_code

    def _keep(self, verdict: Verdict, document: Mapping[str, Any], text: str) -> None:
        words = [*_typed(self.arguments), *self.arguments.arguments]
        try:
            path = keep.kept(verdict, self.layouts, self.script, words, document, text)
        except Exception as error:  # noqa: BLE001 what is kept changes nothing of what was said
            say(f"verify: this run is not kept ({first_line(error)})")
        else:
            if path:
                page = f"verify/{path.name.removesuffix(SUFFIX)}.html"
                say(f"verify: kept in {machine.from_home(path)}; `make serve` shows it on {page}")

    def _hung(self, table: list[str]) -> None:
        """Report a script that hangs, from the thread that noticed; this ends all ranks."""
        waits = [line for line in table if " waits: " in line]
        first = waits[0] if waits else table[0]
        place_ = first.partition("waits: ")[2].partition(" in ")[0]
        verdict = Verdict([Finding("hang", "\n".join(table), place_)])
        verdict.skip("updates: the script never ended")
        _flush()
        self._leave(self._said(verdict))

    def _has_code(self) -> bool:
        """Whether a report has been printed."""
        return (self.board.folder / "code").exists()

    def _code(self) -> int:
        path = self.board.folder / "code"
        return int(path.read_text(encoding="ascii")) if path.exists() else 1

    def _leave(self, code: int) -> NoReturn:
        """End at once: gloo's threads may wait for ranks that are gone."""
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(OSError):  # the last rank may have removed the folder
            path = self.board.folder / "code"
            if not path.exists():
                part = path.with_suffix(f".{self.rank}")
                part.write_text(str(code), encoding="ascii")
                part.rename(path)
            self.board.post("gone", True)
            others = range(self.world_size)
            if all(self.board.has("gone", r) or not self.board.lives(r) for r in others):
                self.board.remove()
        os._exit(code)


def said_wrong(error: FixableError) -> int:
    """Say that the call was wrong; the exit code."""
    print(f"runners.verify: {error}", file=sys.stderr, flush=True)
    print("verify: wrong call", flush=True)
    return error.exit_code


def _end_as_python_does() -> None:
    """Join the script's threads, run what it left for the exit, and write what it has buffered.

    This process ends without Python's own end, since threads of gloo may wait for ranks that are
    gone.
    """
    with suppress(Exception):  # as Python, which goes on where an exit function fails
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    _flush()


def _flush() -> None:
    for one in gc.get_objects():
        if issubclass(type(one), io.IOBase):
            with suppress(Exception):
                one.flush()


def _place_in(error: BaseException) -> str:
    own = [(f, n) for f, n in traceback.walk_tb(error.__traceback__) if is_script(f)]
    return f"{Path(own[-1][0].f_code.co_filename).name}:{own[-1][1]}" if own else ""
