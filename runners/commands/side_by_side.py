"""A launcher that runs passes which time nothing side by side, before an experiment's timed ones.

In: what is pending, and the last records of its runs. Out: the results of these passes, when
`measure` asks for them. A pass times nothing where its run declares so, or where the last record
of its run holds no time. One that took a time, or did not end as declared, runs again, alone.
"""

from collections.abc import Mapping
from contextlib import suppress
from threading import Thread
from typing import Any

from proofbook.runners.core.declared.experiment import Declaration, Experiment, PassName
from proofbook.runners.core.measuring.gather import gather
from proofbook.runners.core.measuring.launch import Launcher, PassResult
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import Run
from proofbook.runners.session.pending import Pending
from proofbook.runners.system.progress_lines import Patience

MOST_LANES, LANE_BYTES = 8, 4 << 30  # of main memory; the largest pass of ours takes 3 GiB


class SideBySide(Launcher):
    """A launcher on CPUs with several lanes, itself and others, each for one pass at a time."""

    def __init__(self) -> None:
        super().__init__()
        num_lanes = min(machine.num_cores(), machine.memory_bytes() // LANE_BYTES, MOST_LANES)
        self._others = [Launcher() for _ in range(1, num_lanes)]
        self._ahead: dict[tuple[str, str], PassResult] = {}  # by run and pass

    def close(self) -> None:
        """End all lanes with their forkservers and ranks."""
        for lane in self._others:
            lane.close()
        super().close()

    def run_ahead(self, runs: Pending, last: Mapping[str, Run]) -> None:
        """Run the passes that time nothing; every few seconds, print how many are left."""
        experiment, self._ahead = self.fitted(runs.experiment), {}
        declared, names = experiment.runs, runs.measured
        passes = [(n, own) for n in names for own in _untimed(declared[n], last.get(n))]

        def work(lane: Launcher) -> None:
            with suppress(IndexError):  # none is left
                while True:
                    name, own = passes.pop()
                    with suppress(OSError, ValueError):  # alone it fails with the same error
                        for server in lane._servers.values():  # no timed pass may run beside that
                            server.wait_until_ready()
                        result = Launcher.run_pass(lane, experiment, name, own)
                        place = self.place_of(declared[name])
                        run = gather(declared[name], {own: result}, place, oversubscribed=False)
                        if not (result.not_measured or run.is_surprise or _has_times(run)):
                            self._ahead[name, own] = result

        kinds, threads, patience = {own for _, own in passes}, list[Thread](), Patience()
        for lane in [self, *self._others][: len(passes)]:
            lane.prepare(kinds)  # they end with this thread
            threads.append(Thread(target=work, args=(lane,), daemon=True))  # nobody waits for it
            threads[-1].start()
        while any(thread.is_alive() for thread in threads):
            patience.tell(f"{experiment.name}: {{}}, untimed passes left: {len(passes)}")
            threads[0].join(0.02)

    def run_pass(
        self, experiment: Experiment, run: str, pass_name: PassName, *more: Any, **named: Any
    ) -> PassResult:
        """The `PassResult` of a pass that ran ahead, once; else of one that runs now, alone."""
        result = self._ahead.pop((run, pass_name), None)
        return result or super().run_pass(experiment, run, pass_name, *more, **named)


def _untimed(declaration: Declaration, last: Run | None) -> list[PassName]:
    """The passes that should take no time, and have a turn however the others end."""
    if declaration.own_network or declaration.follows:
        return []
    comes = declaration.passes if declaration.expected == "completed" else declaration.passes[:1]
    if last is not None and not _has_times(last):
        return [*comes]
    return [name for name in comes if name != "timed" and not declaration.has_timeline]


def _has_times(run: Run) -> bool:
    """Whether a value of the run is a time, or was worked out from times."""
    times = run.timing.model_dump(exclude={"wall_seconds", "oversubscribed"}, exclude_defaults=True)
    return bool(times) or any(measure.repeats == "clock" for measure in run.quantities.values())
