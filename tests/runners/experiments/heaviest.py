"""An experiment for the tests that only `--full` measures, as a whole."""

from runners.core.declared.experiment import Declaration

QUESTION = "Is a whole experiment left to --full?"


def count(rank):
    rank.measure("num_ranks", rank.world_size)


RUNS = {"alone": Declaration("count", passes=("timed",), full=True)}
