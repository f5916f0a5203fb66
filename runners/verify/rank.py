"""One rank: it runs the watched script, then replays it; rank 0 compares, and reports.

In: the arguments of the command, and the environment that a launcher gives a rank. Out: the exit
code of this process, and on rank 0 the report.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch

from runners.system import processes
from runners.system.errors import FixableError, first_line
from runners.system.patience import say
from runners.traces import machine
from runners.verify import compare, report, rerun
from runners.verify.against import Against
from runners.verify.board import RECORDED, Board, GoneError, Lookout, sweep
from runners.verify.records import Layout, Seen, layouts
from runners.verify.replay import Replayed, replayed
from runners.verify.report import SUFFIX, Finding, Verdict
from runners.verify.watch import Watch, flush, run_script

MEMORY_SHARE = 0.8  # of what the host has left
BYTES_PER_ELEMENT = 8 * 3 + 4 * 2  # float64 parameter, gradient and sum, and both in fp32
POLL_SECONDS = 0.02
# What errors of torch say, and the cause.
_ERRORS = (
    ("Expected to have finished reduction", "unused parameters"),
    ("mark a variable ready only once", "ready twice"),
)


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
        os.environ.setdefault(*RECORDED)
        processes.end_with(os.getppid())
        if self.rank == 0:
            sweep()
        self.board = Board(self.rank, self.world_size)
        self.finished_at: float | None = None
        self.output = sys.stdout
        if arguments.json:  # what the script prints must not stand in it
            self.output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self.script = Path(arguments.script).resolve()  # it may change the folder
        self.layouts: Sequence[Layout] = ()  # once all ranks have recorded
        self.watch = Watch(arguments.steps, self._asks_to_stop)
        self.watch.is_shared = against is not None
        self.batches = rerun.keep_batches(lambda: self.watch.is_on) if arguments.one else {}

    def run(self) -> NoReturn:
        """Run the script, and end this process with the exit code."""
        lookout, code = Lookout(self.board, self.arguments.patience, self._hung), 1
        lookout.start()
        try:
            self.seen = run_script(
                self.arguments.script, self.arguments.arguments, self.watch, self._has_code
            )
            lookout.stop()
            code = self._judged()
        except FixableError as error:
            code = report.say_wrong(error) if self.rank == 0 else error.exit_code
        except GoneError as gone:
            if self.rank == 0 and not self._has_code():
                code = self._said(Verdict([Finding("script failed", str(gone))]))
        except BaseException:  # noqa: BLE001 a fault of ours must not look like an agreement
            traceback.print_exc()
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
        self.board.post("seen", self.seen)
        everything = self.board.gather("seen") | {self.rank: self.seen}
        is_broken = any(one.broken for one in everything.values())
        if self.against and not is_broken:
            self.against.divide(everything)
        found = [] if is_broken else layouts(everything)
        self._check_memory(found)
        self.board.post("replayed", self._replays(found))
        if self.rank == 0:
            return self._compared(found, everything)
        while not self._has_code() and self.board.lives(0):
            time.sleep(POLL_SECONDS)
        code: int | None = self.board.first("code")
        return 1 if code is None else code

    def _compared(self, found: Sequence[Layout], everything: Mapping[int, Seen]) -> int:
        self.layouts = found
        verdict = compare.judged(found, everything, self.board.gather("replayed"))
        failed = [rank for rank, one in everything.items() if one.ended]
        for rank in sorted(failed, key=lambda rank: everything[rank].ended_seconds)[:1]:
            says, place = everything[rank].ended, everything[rank].ended_at
            cause = next((key for text, key in _ERRORS if text in says), "script failed")
            verdict.findings.insert(0, Finding(cause, says, place, rank=rank))
        if self.against and self.against.says:
            verdict.notes.insert(0, self.against.says)
        if self.arguments.one and found and not verdict.findings:
            self._run_as_one(verdict, everything)
        return self._said(verdict)

    def _check_memory(self, found: Sequence[Layout]) -> None:
        """Say what the replay needs, and refuse where the host has not got it."""
        updates = [update for one in found for update in one.first.updates[:1]]
        shapes = [one.shape for update in updates for one in update.parameters.values()]
        elements = sum(torch.Size(shape).numel() for shape in shapes)
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
        script, words = self.arguments.script, self.arguments.arguments
        try:
            order = rerun.order(self.layouts, self.watch.modules, batches, inputs, everything)
            found = rerun.run(order, self.board.folder, script, words)
        except rerun.NotRerunError as why:
            verdict.skip(f"as one process: {why}")
            return
        if rerun.compare(verdict, self.layouts, found, inputs):
            verdict.proven("run again as one process, the script makes the same gradients")
            for cut in (cut for one in everything.values() for cut in one.cuts):
                verdict.skip(
                    f"{cut} passes no gradient on to what it sends, here as in one process"
                )

    # The end

    def _said(self, verdict: Verdict) -> int:
        """Print the report, and keep it; the exit code."""
        name = self.script.name
        if before := report.seen_before(self.layouts, self.script):
            verdict.notes.append(before)
        document = report.document(verdict, name, self.world_size)
        text = "\n".join(report.lines(verdict, name, self.world_size))
        self.output.write((report.as_json(document) if self.arguments.json else text) + "\n")
        self.output.flush()
        try:
            path = report.kept(verdict, self.layouts, self.script, self.words, document, text)
        except Exception as error:  # noqa: BLE001 what is kept changes nothing of what was said
            say(f"verify: this run is not kept ({first_line(error)})")
        else:
            if path:
                page = f"verify/{path.name.removesuffix(SUFFIX)}.html"
                say(f"verify: kept in {machine.from_home(path)}; `make serve` shows it on {page}")
        return verdict.exit_code

    def _hung(self, table: list[str]) -> None:
        """Report a script that hangs, from the thread that noticed; this ends all ranks.

        Where this tool has stopped the others, and not their script, the rest stops here.
        """
        posted = [self.board.read("seen", r) for r in range(self.world_size)]
        left = [one.is_stopped for one in posted if one is not None]
        if left and all(left):
            self.seen = self.watch.end()
            self.seen.waits = table[self.rank]
            self._leave(self._judged())
        first = next((line for line in table if " waits: " in line), table[0])
        place = first.partition("waits: ")[2].partition(" in ")[0]
        verdict = Verdict([Finding("hang", "\n".join(table), place)])
        verdict.skip("updates: the script never ended")
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
