"""A run that ends otherwise than it is declared: the tests' own experiment."""

from runners.core.declared.experiment import Declaration

QUESTION = "What does a command say of a surprise?"


def completes(rank):
    """Nothing fails."""
    rank.measure("num_ranks", rank.world_size)


def crashes(rank):
    """A bug in the second step, which no phase marks."""
    for step in rank.steps(2):
        rank.measure("inverse", 1 / (1 - step))


RUNS = {
    "surprises": Declaration("completes", passes=("timed",), expected="out_of_memory"),
    "crashes": Declaration("crashes", passes=("timed",)),
}
