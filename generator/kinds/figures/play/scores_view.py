"""Who computes which scores of a causal attention, played by turns, from a run's settings.

The rule is that of `runners/experiments/sequences.py`: in each turn of a ring, a rank's queries
meet the keys of one rank, from its own backwards; gathered keys come in a single turn. Ranks that
exchange heads compute all scores of their tokens, each for its own heads: rows in turn stand for
these. How much each rank computes was measured.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.kinds.figures.drawings.scores import Square, Stretch, scores
from proofbook.generator.kinds.figures.picture import DrawnState, printed_bytes
from proofbook.generator.kinds.figures.play.states import PlayState
from proofbook.generator.kinds.figures.step_rules import number
from proofbook.generator.printing.folio import Folio
from proofbook.runners.core.trace import records
from proofbook.runners.core.trace.schema import Setting

SIZE = 32  # cells of a side


def owners(settings: Mapping[str, Setting], num: int) -> list[int]:
    """The rank that has each cell's tokens, of `num` ranks, by the order of the run."""
    order, lengths = settings["order"], settings["documents"]
    pieces = [SIZE]
    if order == "each_document" and isinstance(lengths, list):
        pieces = [int(length) * SIZE // sum(map(int, lengths)) for length in lengths]
    if order == "contiguous":
        return [cell * num // SIZE for cell in range(SIZE)]
    blocks = (cell * 2 * num // piece for piece in pieces for cell in range(piece))
    return [min(block, 2 * num - 1 - block) for block in blocks]


def documents(settings: Mapping[str, Setting]) -> list[int]:
    """The document of each cell's tokens."""
    written = settings["documents"]
    lengths = [int(length) for length in written] if isinstance(written, list) else []
    lengths = lengths or [1]
    return [n for n, length in enumerate(lengths) for _ in range(length * SIZE // sum(lengths))]


def computed(run: records.Run) -> list[Stretch]:
    """The cells that each rank computes, by turn and row."""
    num, way = run.world_size, run.strategy
    of, document = owners(run.settings, num), documents(run.settings)
    runs = []
    for row in range(SIZE):
        rank = row % num if way == "heads" else of[row]
        turn_of = [0 if way in ("heads", "gather") else (rank - owner) % num for owner in of]
        visible = [key for key in range(row + 1) if document[key] == document[row]]
        first = visible[0]
        for turn, keys in groupby(visible, turn_of.__getitem__):
            end = first + len(list(keys))
            runs.append(Stretch(rank, turn, row, first, end))
            first = end
    return runs


def turn_scores(run: records.Run) -> list[list[int]]:
    """Of each rank: the scores that it computed, by turn."""
    of_ranks = (of.measures["turn_scores"] for of in run.ranks)
    return [[int(of) for of in scores] for scores in of_ranks if isinstance(scores, list)]


def slowest(of_ranks: Sequence[Sequence[int]]) -> int:
    """How many scores the busiest ranks of all turns compute, one turn after the other."""
    return sum(map(max, zip(*of_ranks, strict=True)))


def view(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: the square of scores of its first run, and its ranks' turns."""
    words = folio.ui["play"]["scores"]
    longest = max(slowest(turn_scores(state.runs[0].run)) for state in states)
    for state in states:
        run = state.runs[0].run
        of_ranks, size = (
            turn_scores(run),
            printed_bytes(number(run.ranks[0].measures["forward_sent_bytes"])),
        )
        below = words["sent"].format(size=size)
        num = len(of_ranks[0])
        told = [words["start"]]
        for turn in range(num):
            busiest = max(of[turn] for of in of_ranks)
            waits = [str(n) for n, of in enumerate(of_ranks) if of[turn] < busiest]
            alike = words["busy" if busiest else "none"]
            waiting = words["wait"].format(ranks=", ".join(waits)) if waits else alike
            told.append(f"{words[run.strategy].format(n=turn + 1, of=num)} {waiting}")
        moments = tuple((round(n / num, 4), line) for n, line in enumerate(told))
        square = Square(SIZE, computed(run), of_ranks, longest, below)
        names = (words["queries"], words["keys"], words["rank"])
        yield DrawnState(partial(scores, square, names), below, moments=moments)
