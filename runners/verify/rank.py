"""One rank: it runs the watched script, then replays it; rank 0 compares, and reports.

In: the arguments of the command, and the environment that a launcher gives a rank. Out: the exit
code of this process, and on rank 0 the report.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, NoReturn

from runners.core.system import processes
from runners.system.errors import FixableError, first_line
from runners.system.patience import say
from runners.verify import compare, cpu, report, rerun
from runners.verify.against import Against
from runners.verify.board import Board, Lookout, ScriptFailure, failed, sweep
from runners.verify.records import Layout, Seen, layouts
from runners.verify.replay import Replayed, replayed
from runners.verify.report import Verdict
from runners.verify.watch import Watch, flush, run_script

MEMORY_SHARE = 0.8  # of what the host has left
BYTES_PER_ELEMENT = 8 * 3 + 4 * 2  # float64 parameter, gradient and sum, and both in fp32
POLL_SECONDS = 0.02
SAME_SECONDS = 5.0


class Rank:
    """One rank of a launch.

    Args:
        arguments: of the command.
        words: the command's options, the script and its arguments, as a reader would type them.
        against: the unsharded module, where the command names one.

    Raises:
        FixableError: other ranks run on other hosts.
    """

    def __init__(
        self, arguments: argparse.Namespace, words: Sequence[str], against: Against | None
    ) -> None:
        self.arguments, self.words, self.against = arguments, words, against
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size)) != self.world_size:
            raise FixableError("all ranks must run on one host: a script on 2 to 8 ranks shows it")
        processes.end_with(os.getppid())
        if self.rank == 0:
            sweep()
        self.board = Board(self.rank, self.world_size, os.environ.get("MASTER_PORT", "0"))
        self.finished_at: float | None = None
        self.document = None
        if arguments.json:  # what the script prints must not stand in it
            self.document = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._says = RLock()
        self.script = Path(arguments.script).resolve()  # it may change the folder
        self.layouts: Sequence[Layout] = ()  # once all ranks have recorded
        self.watch = Watch(arguments.steps, self._asks_to_stop)
        self.watch.is_shared = against is not None
        self.watch.sends.on_call = self.board.begins
        self.batches = rerun.keep_batches(lambda: self.watch.is_on) if arguments.one else {}

    def run(self) -> NoReturn:
        """Run the script, and end this process with the exit code."""
        patience = self.arguments.patience
        lookout = Lookout(self.board, patience, self._ends, self._stops, self._leave)
        lookout.start()
        try:
            self.seen = run_script(
                self.arguments.script, self.arguments.arguments, self.watch, self._has_code
            )
            code = self._judged()
        except FixableError as error:
            time.sleep(SAME_SECONDS * (self.rank > 0))  # rank 0 says the same, and ends this one
            code = report.say_wrong(error)
        except BaseException as error:  # noqa: BLE001 a fault of ours must not look like agreement
            traceback.print_exc()
            verdict = Verdict()
            verdict.skip(f"anything: an error of the tool's own ({first_line(error)})")
            code = self._said(verdict)
        self._leave(code)

    def _asks_to_stop(self, count: int, is_finished: bool) -> bool:
        """Whether the script has shown enough: rank 0 decides, a step ahead of all."""
        last = self.board.read("stop", 0) if is_finished else None
        if self.rank == 0 and is_finished and last is None:
            self.finished_at = self.finished_at or time.monotonic()
            if time.monotonic() - self.finished_at > self.arguments.seconds:
                self.board.post("stop", count + 2)
        return last is not None and count >= last

    # The replay, and the comparison

    def _judged(self) -> int:
        if self.arguments.one:
            self.board.post("batches", self.batches)
            self.board.post("inputs", rerun.inputs_of(self.seen))
        if (own := self.seen).ended:
            self.board.post("failed", ScriptFailure(own.ended, own.ended_at, own.ended_seconds))
        self.board.post("seen", own)
        everything = self.board.gather("seen") | {self.rank: own}
        failures = [one for one in everything.values() if one.ended]
        for one in sorted(failures, key=lambda one: one.ended_seconds)[:1]:
            cpu.check(one, is_mapped=self.arguments.cpu)
        is_broken = any(one.broken for one in everything.values())
        if self.against and not is_broken:
            self.against.divide(everything)
        found = [] if is_broken else layouts(everything)
        self._check_memory(found)
        self.board.post("replayed", self._replays(found))
        if self.rank == 0:
            return self._compared(found, everything)
        while (code := self.board.first("code")) is None:
            time.sleep(POLL_SECONDS)
        return int(code)

    def _compared(self, found: Sequence[Layout], everything: Mapping[int, Seen]) -> int:
        self.layouts = found
        verdict = compare.judged(found, everything, self.board.gather("replayed"))
        if finding := failed(self.board):
            verdict.findings.insert(0, finding)
        if self.against and self.against.says:
            verdict.notes.insert(0, self.against.says)
        if self.arguments.one and found and not verdict.findings:
            self._run_as_one(verdict, everything)
        return self._said(verdict)

    def _check_memory(self, found: Sequence[Layout]) -> None:
        """Say what the replay needs, and refuse where the host has not got it."""
        updates = (update for one in found for update in one.first.updates[:1])
        parts = (one for update in updates for one in update.parameters.values())
        elements = sum(math.prod(one.shape) for one in parts)
        needed = elements * BYTES_PER_ELEMENT * self.world_size
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if self.rank == 0 and needed > free // 100:
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
        whole = layout.passes(number, self.rank)
        return replayed(self.watch.modules[layout.key], parameters, buffers, whole, own.frozen)

    def _run_as_one(self, verdict: Verdict, everything: Mapping[int, Seen]) -> None:
        """Run the script as one process, and compare; what agrees there needs no other proof."""
        batches, inputs = self.board.gather("batches"), self.board.gather("inputs")
        arguments = self.arguments
        words = [*["--cpu"] * arguments.cpu, arguments.script, *arguments.arguments]
        try:
            order = rerun.order(self.layouts, self.watch.modules, batches, inputs, everything)
            found = rerun.run(order, self.board.folder, words)
        except rerun.NotRerunError as why:
            verdict.skip(f"as one process: {why}")
            return
        cuts = [cut for one in everything.values() for cut in one.cuts]
        if rerun.compare(verdict, self.layouts, found, inputs):
            verdict.proven("run again as one process, the script makes the same gradients")
            for cut in cuts:
                verdict.skip(
                    f"{cut} passes no gradient on to what it sends, here as in one process"
                )
        gathers = [cut for cut in cuts if "gather" in cut]
        for one in (one for one in verdict.findings if one.cause == rerun.DIFFERS and gathers):
            one.cause, one.says = "gather cuts", f"{gathers[0]} passes no gradient on; {one.says}"

    # The end

    def _said(self, verdict: Verdict) -> int:
        """Print the report, and keep it; the exit code."""
        self._says.acquire()  # for good: the `Lookout` may have something to say, too
        return report.said(
            verdict, self.script, self.words, self.world_size, self.layouts, self.document
        )

    def _stops(self, waits: str) -> None:
        """This rank waits for ranks that were stopped by us: judge what it has recorded."""
        self.seen = self.watch.end()
        self.seen.waits = waits
        self._leave(self._judged())

    def _ends(self, verdict: Verdict) -> None:
        """Report a script that cannot go on, from the thread that noticed; this ends all ranks."""
        flush()
        self._leave(self._said(verdict))

    def _has_code(self) -> bool:
        """Whether a report has been printed."""
        return self.board.first("code") is not None

    def _leave(self, code: int) -> NoReturn:
        """End at once: gloo's threads may wait for ranks that are gone."""
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(OSError, RuntimeError):  # the last rank may have removed the folder
            if not self._has_code():
                self.board.post("code", code)
            self.board.post("gone", True)
            others = range(self.world_size)
            if all(self.board.has("gone", r) or not self.board.lives(r) for r in others):
                self.board.remove()
        os._exit(code)
