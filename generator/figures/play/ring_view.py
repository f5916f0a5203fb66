"""A ring all-reduce, step by step, computed from values that a run recorded.

The rule is that of `ring_all_reduce_by_hand.py`: in the reduce-scatter rank r sends chunk r - s and
adds what it receives; in the all-gather it sends chunk r + 1 - s and keeps what it receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.evidence.play_states import State
from generator.evidence.value import Value
from generator.figures.drawings.chunks import Cell
from generator.figures.drawings.chunks import chunks as drawn
from generator.figures.play.seen import Seen, both, in_one_cell


@dataclass(frozen=True)
class Held:
    """A chunk on a rank: the sum of so many ranks' values, and whether the last step brought it."""

    value: Value
    num_summed: int = 1
    has_arrived: bool = False


def after(start: Sequence[Sequence[Value]], num_steps: int) -> list[list[Held]]:
    """What each rank holds after some steps of the ring.

    Args:
        start: the value of each chunk on each rank, as `start[rank][chunk]`.
        num_steps: of the 2 (N - 1) that a ring of N ranks has.
    """
    num = len(start)
    rows = [[Held(value) for value in row] for row in start]
    for step in range(num_steps):
        is_adding, turn = step < num - 1, step % (num - 1)
        before = rows
        rows = [[Held(one.value, one.num_summed) for one in row] for row in before]
        for rank in range(num):
            chunk = (rank - turn if is_adding else rank + 1 - turn) % num
            sent, to = before[rank][chunk], (rank + 1) % num
            kept = before[to][chunk]
            rows[to][chunk] = (
                Held(kept.value + sent.value, kept.num_summed + sent.num_summed, has_arrived=True)
                if is_adding
                else Held(sent.value, sent.num_summed, has_arrived=True)
            )
    return rows


def chunks(states: Sequence[State], figure: Figure, folio: Folio) -> list[Seen]:
    """The ring of each state; the first run of a state gives the values."""
    assert figure.play is not None
    assert figure.play.chunk is not None
    words, ranks_words = folio.ui["play"], folio.ui["figure"]
    found = []
    for state in states:
        one = state.runs[0]
        start = _start(figure.play.chunk, one.path, one.run.world_size, folio)
        rows = after(start, state.step)
        cells = [
            [_cell(held, rank, chunk, len(rows), folio) for chunk, held in enumerate(row)]
            for rank, row in enumerate(rows)
        ]
        names = [f"{ranks_words['rank']} {rank}" for rank in range(len(rows))]
        table = {
            name: in_one_cell((folio.show(held.value) for held in row), ", ")
            for name, row in zip(names, rows, strict=True)
        }
        found.append(
            Seen(
                both(drawn, cells, ranks_words["rank"], words["chunk"]),
                "; ".join(
                    f"{name}: {', '.join(cell.words for cell in row)}"
                    for name, row in zip(names, cells, strict=True)
                ),
                (table,) * len(state.runs),
            )
        )
    return found


def _start(chunk: str, path: str, num: int, folio: Folio) -> list[list[Value]]:
    """The values that the run recorded, a chunk each on every rank."""
    rows = []
    for rank in range(num):
        row = []
        for position in range(num):
            expression = chunk.replace("{rank}", str(rank)).replace("{chunk}", str(position))
            value = folio.evidence.value(expression, {"run": path})
            assert isinstance(value, Value), expression
            row.append(value)
        rows.append(row)
    return rows


def _cell(held: Held, rank: int, chunk: int, num: int, folio: Folio) -> Cell:
    words = folio.ui["play"]
    shown = str(held.value)
    say = words["holds"].format(rank=rank, chunk=chunk, value=shown, n=held.num_summed, of=num)
    return Cell(shown, held.num_summed, held.has_arrived, say)
