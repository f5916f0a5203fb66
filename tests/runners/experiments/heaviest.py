"""An experiment for the tests that only `--full` measures, as a whole."""

from runners.declared.experiment import RunPlan

QUESTION = "Is a whole experiment left to --full?"


def count(rank):
    rank.measure("num_ranks", rank.world_size)


RUNS = {"alone": RunPlan("count", passes=("timed",), full=True)}
