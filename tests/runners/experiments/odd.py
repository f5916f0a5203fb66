"""A run that ends otherwise than it is declared: the tests' own experiment."""

from runners.declared.experiment import RunPlan

QUESTION = "What does a command say of a surprise?"


def completes(rank):
    """Nothing fails."""
    rank.measure("num_ranks", rank.world_size)


def crashes(rank):
    """A bug in the second step, which no phase marks."""
    for step in rank.steps(2):
        rank.measure("inverse", 1 / (1 - step))


RUNS = {
    "surprises": RunPlan("completes", passes=("timed",), expected="out_of_memory"),
    "crashes": RunPlan("crashes", passes=("timed",)),
}
