"""The tests' own small experiments: runs left to `--full`, surprises, and a disk without space."""

from proofbook.runners.core.declared.experiment import Declaration

NUM_BYTES = 8 << 20


def count(rank):
    for step in rank.steps(rank.settings.num_steps):
        rank.measure("num_counted", step + 1)


def well(rank):
    """Takes no space, and nothing fails."""
    rank.measure("num_ranks", rank.world_size)


def crashes(rank):
    """A bug in the second step, which no phase marks."""
    for step in rank.steps(2):
        rank.measure("inverse", 1 / (1 - step))


def fills(rank):
    """Write into the rank's own folder until it takes no more."""
    with rank.phase("save"):
        (rank.scratch / f"large{rank.rank}").write_bytes(bytes(NUM_BYTES))


class Heavier:
    QUESTION = "What does a run leave to --full?"
    RUNS = {
        "light": Declaration("count", settings={"num_steps": 8}, passes=("timed",)),
        "heavy": Declaration("count", settings={"num_steps": 9}, passes=("timed",), full=True),
    }


class Heaviest:
    QUESTION = "Is a whole experiment left to --full?"
    STRATEGIES = {"alone": well}
    RUNS = {"alone": Declaration("alone", passes=("timed",), full=True)}


class Odd:
    QUESTION = "What does a command say of a surprise?"
    STRATEGIES = {"completes": well}
    RUNS = {
        "surprises": Declaration("completes", passes=("timed",), expected="out_of_memory"),
        "crashes": Declaration("crashes", passes=("timed",)),
    }


class Full:
    QUESTION = "What does a command say that finds no space?"
    RUNS = {name: Declaration(name, 2, passes=("timed",)) for name in ("well", "fills")}


EXPERIMENTS = {"heavier": Heavier, "heaviest": Heaviest, "odd": Odd, "full": Full}
