"""A run that is well, and one that fills a small disk: the tests' own experiment."""

from runners.core.declared.experiment import Declaration

QUESTION = "What does a command say that finds no space?"
NUM_BYTES = 8 << 20


def well(rank):
    """Takes no space."""
    rank.measure("num_ranks", rank.world_size)


def fills(rank):
    """Write into the rank's own folder until it takes no more."""
    with rank.phase("save"):
        (rank.scratch / f"large{rank.rank}").write_bytes(bytes(NUM_BYTES))


RUNS = {name: Declaration(name, 2, passes=("timed",)) for name in ("well", "fills")}
