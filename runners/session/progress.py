"""Progress of experiments on the terminal: a line for each run, and more where one takes long."""

from collections.abc import Callable

from proofbook.runners.core.declared.experiment import Experiment
from proofbook.runners.core.ranks.heartbeat import Beat
from proofbook.runners.core.trace.records import Run
from proofbook.runners.system.progress_lines import Patience, say
from proofbook.runners.traces.summary import how_it_ended, how_it_was_meant_to_end


class Progress:
    """Writes to standard error, so that standard output stays for results."""

    def __init__(self) -> None:
        self._total = self._number = 0
        self._causes: set[str] = set()  # of runs that were not measured, as far as printed

    def begin(self, experiment: Experiment) -> None:
        """Print the question of an experiment that starts."""
        self._total, self._number = len(experiment.runs), 0
        say(f"{experiment.name}: {experiment.question}")

    def watcher(self, run: str, pass_name: str) -> Callable[[list[Beat]], None]:
        """A function of the ranks' beats, which prints their phases where a pass takes long."""
        patience, place = Patience(), f"[{self._number + 1}/{self._total}]"

        def watch(beats: list[Beat]) -> None:
            ranks = ", ".join(
                f"rank {i} {b.phase}{f' (step {b.step})' if b.step >= 0 else ''}"
                for i, b in enumerate(beats)
            )
            patience.tell(f"  {place} {run} · {pass_name} · {{}} · {ranks}")

        return watch

    def again(self, name: str, cause: str) -> None:
        """Print that a pass is measured once more."""
        say(f"  [{self._number + 1}/{self._total}] {name} once more: {cause}")

    def line(self, line: str) -> None:
        """Print an indented line."""
        say(f"  {line}")

    def kept(self, name: str) -> None:
        """Print that a run is not measured again."""
        self._ended(name, "kept as measured before")

    def not_measured(self, name: str, cause: str) -> None:
        """Print that a run failed for want of the machine."""
        why = ", for a cause above" if cause in self._causes else f": {cause}"
        self._causes.add(cause)
        self._ended(name, f"not measured{why}")

    def ended(self, name: str, run: Run) -> None:
        """Print how a run ended, and whether that was expected."""
        verdict = "" if run.status in ("completed", "skipped") else " (as expected)"
        if run.is_surprise:
            verdict = f" (SURPRISE, expected {how_it_was_meant_to_end(run)})"
        self._ended(name, f"{how_it_ended(run)}{verdict}", f"{run.timing.wall_seconds:6.1f} s")

    def _ended(self, name: str, how: str, seconds: str = "") -> None:
        self._number += 1
        say(f"  [{self._number}/{self._total}] {name:<32} {seconds:8}  {how}")
