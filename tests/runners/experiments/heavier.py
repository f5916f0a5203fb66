"""An experiment for the tests: one run for everybody, one that only `--full` measures."""

from runners.core.declared.experiment import Declaration

QUESTION = "What does a run leave to --full?"


def count(rank):
    for step in rank.steps(rank.settings.num_steps):
        rank.measure("num_counted", step + 1)


RUNS = {
    "light": Declaration("count", settings={"num_steps": 8}, passes=("timed",)),
    "heavy": Declaration("count", settings={"num_steps": 9}, passes=("timed",), full=True),
}
