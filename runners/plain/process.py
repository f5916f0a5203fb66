"""The process of a run without ranks: it calls the run's function and writes the outcome.

In: the names of experiment and run, the file to write, and on standard input the settings as JSON.
Out: a `RankOutcome` as JSON; where the function failed, with its error and line.
"""

import json
import random
import sys
from pathlib import Path
from traceback import extract_tb, print_exc

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.core.trace.records import Failure
from proofbook.runners.plain.experiment import Recorder
from proofbook.runners.system.book import enter_book
from proofbook.runners.system.errors import first_line

PHASE = "program"


def main() -> None:
    """Run the run that argv names, settings from stdin; write its outcome, or error and line."""
    name, run, file, seed = sys.argv[1:]
    enter_book(Path.cwd())
    experiment = find(name)
    declared = experiment.runs[run]
    settings = declared.settings.changed(json.load(sys.stdin))
    settings = settings.of_run(declared.strategy, 1, int(seed))
    outcome = RankOutcome(rank=0, status="completed")
    random.seed(settings.seed)
    try:
        experiment.strategies[declared.strategy](Recorder(settings, outcome))
    except Exception as error:  # noqa: BLE001 whatever an author's function raises is a result
        print_exc()
        path, called = str(experiment.path), extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in called if frame.filename == path]
        message = f"{type(error).__name__}: {first_line(error)}"
        line = f"{experiment.path.name}:{lines[-1]}" if lines else None
        failure = Failure(kind="exception", message=message, phase=PHASE, line=line)
        outcome = RankOutcome(rank=0, status="failed", failure=failure)
    Path(file).write_text(outcome.model_dump_json(), encoding="utf-8")


if __name__ == "__main__":
    main()
