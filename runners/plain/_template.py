"""TODO: what this experiment measures; now it counts how often a loop runs."""

from proofbook.runners.core.declared.settings import Count, RunSettings
from proofbook.runners.plain.experiment import Plain, Recorder


class Settings(RunSettings):
    """What a run is given."""

    num_passes: Count = 100


def counted(run: Recorder[Settings]) -> None:
    """Do what is to be measured, and record it."""
    num_counted = 0
    for _ in range(run.settings.num_passes):
        num_counted += 1
    run.measure("num_counted", num_counted, unit="passes")


QUESTION = "TODO: what do you want to know?"

RUNS = {
    "few": Plain("counted", settings=Settings()),
    "many": Plain("counted", settings=Settings(num_passes=1000)),
}
