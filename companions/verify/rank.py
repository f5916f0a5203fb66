"""One rank: it runs the watched script, then replays its module; rank 0 compares, and reports.

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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, NoReturn

from proofbook.companions.verify import compare, cpu, records, report, rerun
from proofbook.companions.verify.against import Against
from proofbook.companions.verify.board import Board, Lookout, failed
from proofbook.companions.verify.launch import sweep
from proofbook.companions.verify.replay import Replay, replay_passes
from proofbook.companions.verify.report import Verdict
from proofbook.companions.verify.script import WRONG_CALL, flush, run_script
from proofbook.companions.verify.watch import Watch
from proofbook.runners.core.system import processes
from proofbook.runners.system.errors import FixableError, first_line
from proofbook.runners.system.progress_lines import say

MEMORY_SHARE = 0.8  # of what the host has left
BYTES_PER_ELEMENT = 8 * 3 + 4 * 2  # float64 parameter, gradient and sum, and both in fp32
POLL_SECONDS = 0.02
SAME_SECONDS = 5.0


class WatchedRank:
    """One rank of a launch; `words` are options, script and its arguments as a reader types them.

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
        self._publishes = RLock()
        self.script = Path(arguments.script).resolve()  # it may change the folder
        self.modules: records.Modules = ()  # once all ranks have recorded
        self.watch = Watch(arguments.steps, self._asks_to_stop)
        self.watch.is_shared = against is not None
        self.watch.collectives.on_call = self.board.write_call
        self.recording = self.watch.recording
        self.batches: rerun.Batches = {}
        if arguments.one:
            self.batches = rerun.record_batches(lambda: self.watch.is_recording)

    def run(self) -> NoReturn:
        """Run the script, compare it with its replay, and end this process with the exit code."""
        patience = self.arguments.patience
        lookout = Lookout(self.board, patience, self._end, self._stop_waiting, self._leave)
        lookout.start()
        try:
            run_script(self.arguments.script, self.arguments.arguments, self.watch, self._has_code)
            code = self._compare()
        except FixableError as error:
            time.sleep(SAME_SECONDS * (self.rank > 0))  # rank 0 says the same, and ends this one
            code = report.say_wrong_call(error)
        except BaseException as error:  # noqa: BLE001 a fault of ours must not look like agreement
            traceback.print_exc()
            verdict = Verdict()
            verdict.skip(f"anything: an error of the tool's own ({first_line(error)})")
            code = self._publish(verdict)
        self._leave(code)

    def _asks_to_stop(self, count: int, is_finished: bool) -> bool:
        """Whether the script is to stop: rank 0 decides, a step ahead of all."""
        last = self.board.read("stop", 0) if is_finished else None
        if self.rank == 0 and is_finished and last is None:
            self.finished_at = self.finished_at or time.monotonic()
            if time.monotonic() - self.finished_at > self.arguments.seconds:
                self.board.post("stop", count + 2)
        return last is not None and count >= last

    # The replay, and the comparison

    def _compare(self) -> int:
        """Exchange recordings and replays; on rank 0, compare and report. Returns the exit code."""
        if self.arguments.one:
            self.board.post("batches", self.batches)
            self.board.post("inputs", rerun.inputs_of(self.recording))
        if self.recording.failure:
            self.board.post("failed", self.recording.failure)
        self.board.post("seen", self.recording)
        recordings = self.board.gather("seen") | {self.rank: self.recording}
        failures = [own.failure for own in recordings.values() if own.failure]
        if failures:
            first = min(failures, key=lambda failure: failure.seconds)
            cpu.check(first, is_mapped=self.arguments.cpu)
            if first.error == WRONG_CALL and not any(o.roots for o in recordings.values()):
                raise FixableError("the script refused its arguments (its message stands above)")
        is_broken = any(recording.broken for recording in recordings.values())
        if self.against and not is_broken:
            self.against.place_parts(recordings)
        modules = [] if is_broken else records.distributed_modules(recordings)
        self._check_memory(modules)
        self.board.post("replayed", self._replays(modules))
        if self.rank == 0:
            self.modules = modules
            return self._publish(self._verdict(recordings))
        while (code := self.board.first("code")) is None:
            time.sleep(POLL_SECONDS)
        return int(code)

    def _verdict(self, recordings: records.Recordings) -> Verdict:
        replays = self.board.gather("replayed")
        verdict = compare.compare_modules(self.modules, recordings, replays)
        if finding := failed(self.board):
            if not verdict.findings and verdict.compared["parameters_compared"]:
                finding.says += f"; the {verdict.compared['updates']} updates before it agree"
            verdict.findings.insert(0, finding)
        if self.against and self.against.summary:
            verdict.notes.insert(0, self.against.summary)
        if self.arguments.one and self.modules and not verdict.findings:
            self._compare_as_one(verdict, recordings)
        return verdict

    def _check_memory(self, modules: records.Modules) -> None:
        """Print the memory that the replay needs; raises FixableError if the host has less."""
        updates = (update for module in modules for update in module.first.updates[:1])
        parts = (part for update in updates for part in update.parameters.values())
        elements = sum(math.prod(part.shape) for part in parts)
        needed = elements * BYTES_PER_ELEMENT * self.world_size
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if self.rank == 0 and needed > free // 100:
            say(f"verify: the replay needs about {needed / 2**20:,.0f} MiB besides activations")
        if needed > MEMORY_SHARE * free:
            raise FixableError(
                f"the replay needs {needed / 2**30:.1f} GiB, and the host has {free / 2**30:.1f}: "
                "shorten the model (fewer layers)"
            )

    def _replays(self, modules: records.Modules) -> dict[str, list[Replay]]:
        """The replays of this rank, of each module whose group it leads and of each update."""
        return {
            module.key: [self._replay(module, number) for number in range(module.num_updates)]
            for module in modules
            if self.rank in module.leaders
            and not any(record.refused for record in module.records.values())
        }

    def _replay(self, module: records.DistributedModule, number: int) -> Replay:
        record = self.recording.roots[module.key]
        source = self.rank if record.buffers_from is None else record.buffers_from
        parameters: Any = module.whole(number, self.rank, "parameters")
        buffers: Any = module.whole(number, source, "buffers")
        if self.against and module.key in self.against.modules:
            return self.against.replay(module, number, self.rank, parameters, buffers)
        passes, frozen = module.whole_passes(number, self.rank), record.updates[number].frozen
        return replay_passes(self.watch.modules[module.key], parameters, buffers, passes, frozen)

    def _compare_as_one(self, verdict: Verdict, recordings: records.Recordings) -> None:
        """Run the script as one process, and compare; agreement there closes most gaps."""
        batches, inputs = self.board.gather("batches"), self.board.gather("inputs")
        arguments, modules = self.arguments, self.modules
        words = [*["--cpu"] * arguments.cpu, arguments.script, *arguments.arguments]
        try:
            own = rerun.rerun_inputs(modules, self.watch.modules, batches, inputs, recordings)
            result = rerun.rerun(own, self.board.folder, words)
        except rerun.NotRerunError as why:
            verdict.skip(f"as one process: {why}")
            return
        cuts = [cut for recording in recordings.values() for cut in recording.cuts]
        if rerun.compare(verdict, modules, result, inputs):
            verdict.close_gaps("run again as one process, the script makes the same gradients")
            for cut in cuts:
                verdict.skip(
                    f"{cut} passes no gradient on to what it sends, here as in one process"
                )
        gathers = [cut for cut in cuts if "gather" in cut]
        for finding in verdict.findings if gathers else ():
            if finding.cause == rerun.DIFFERS:
                finding.cause = "gather cuts"
                finding.says = f"{gathers[0]} passes no gradient on; {finding.says}"

    # The end

    def _publish(self, verdict: Verdict) -> int:
        """Print the report, and keep it; returns the exit code."""
        self._publishes.acquire()  # for good: the `Lookout` may have something to say, too
        return report.publish(
            verdict, self.script, self.words, self.world_size, self.modules, self.document
        )

    def _stop_waiting(self, waits: str) -> None:
        """Compare the recorded updates, since this rank waits for ranks that were stopped by us."""
        self.watch.end()
        self.recording.waits = waits
        self._leave(self._compare())

    def _end(self, verdict: Verdict) -> None:
        """Report a script that cannot go on, from the `Lookout`'s thread; this ends all ranks."""
        flush()
        self._leave(self._publish(verdict))

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
