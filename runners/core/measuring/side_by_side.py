"""A launcher that runs passes which time nothing side by side, before an experiment's timed ones.

In: what is pending of an experiment, and the last traces of its runs. Out: the results of these
passes, when `measure` asks for them. A pass times nothing where its run declares so, or where the
last trace of its run holds no time. One that took a time all the same, or did not end as declared,
runs again, alone.
"""

from collections.abc import Iterable, Iterator, Mapping
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

LANE_BYTES = 4 << 30  # main memory for each pass; the largest of ours takes 3 GiB
MOST_LANES = 8
JOIN_SECONDS = 0.02


class SideBySide(Launcher):
    """A launcher on CPUs with several lanes, itself and others; a lane runs one pass at a time."""

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

    def prepare(self, passes: Iterable[PassName]) -> None:
        """Start the forkservers of these passes in all lanes; they end with this thread."""
        super().prepare(wanted := [*passes])
        for lane in self._others:
            lane.prepare(wanted)

    def run_ahead(self, runs: Pending, last: Mapping[str, Run]) -> None:
        """Run the passes that time nothing; every few seconds, print how many are left."""
        experiment, self._ahead = self.fitted(runs.experiment), {}
        passes = [
            (name, own)
            for name in runs.measured
            for own in _untimed(experiment.runs[name], last.get(name))
        ]
        if not self._others or len(passes) < 2:
            return

        def work(lane: Launcher) -> None:
            with suppress(IndexError):  # none is left
                while True:
                    name, own = passes.pop()
                    with suppress(OSError, ValueError):  # alone it fails with the same error
                        result = Launcher.run_pass(lane, experiment, name, own)
                        if self._may_stand(experiment.runs[name], own, result):
                            self._ahead[name, own] = result

        # As daemons: whoever stops the command does not wait for them.
        lanes = [Thread(target=work, args=(one,), daemon=True) for one in (self, *self._others)]
        for lane in lanes:
            lane.start()
        patience = Patience()
        while any(lane.is_alive() for lane in lanes):
            patience.tell(f"{experiment.name}: {{}}, untimed passes left: {len(passes)}")
            lanes[0].join(JOIN_SECONDS)

    def run_pass(
        self, experiment: Experiment, run: str, pass_name: PassName, *more: Any, **named: Any
    ) -> PassResult:
        """The `PassResult` of a pass that ran ahead, once; else of one that runs now, alone."""
        result = self._ahead.pop((run, pass_name), None)
        return result or super().run_pass(experiment, run, pass_name, *more, **named)

    def _may_stand(self, declaration: Declaration, own: PassName, result: PassResult) -> bool:
        """Whether a pass beside others ended as declared, and took no time."""
        place = self.place_of(declaration)
        run = gather(declaration, {own: result}, place, oversubscribed=False)
        return not (result.not_measured or run.is_surprise or _has_times(run))


def _untimed(declaration: Declaration, last: Run | None) -> Iterator[PassName]:
    """Yield the passes that should take no time, and whose turn comes whatever others end in."""
    if declaration.own_network or declaration.follows:
        return
    is_timeless = last is not None and not _has_times(last)
    for number, name in enumerate(declaration.passes):
        comes = not number or declaration.expected == "completed"
        if comes and (is_timeless or not (name == "timed" or declaration.has_timeline)):
            yield name


def _has_times(run: Run) -> bool:
    """Whether a value of the run is a time, or was worked out from times."""
    clocks = any(quantity.repeats == "clock" for quantity in run.quantities.values())
    of_all = {"wall_seconds", "oversubscribed"}
    return clocks or bool(run.timing.model_dump(exclude=of_all, exclude_defaults=True))
