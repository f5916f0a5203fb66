"""A ring all-reduce, played step by step, with a decimal digit for each rank.

The rule is that of `ring_all_reduce_by_hand.py`: in the reduce-scatter rank r sends chunk r - s and
adds what it receives; in the all-gather it sends chunk r + 1 - s and keeps what it receives.
"""

from __future__ import annotations

from collections.abc import Sequence

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.evidence.play_states import State
from generator.figures.drawings.chunks import Cell
from generator.figures.drawings.chunks import chunks as drawn
from generator.figures.play.seen import Seen, both


def start(num: int) -> list[list[int]]:
    """Numbers whose sums tell what they are sums of: rank 1 holds 10, 20, 30 and so on."""
    return [[(chunk + 1) * 10**rank for chunk in range(num)] for rank in range(num)]


def after(before: Sequence[Sequence[int]], step: int) -> list[list[int]]:
    """What each rank holds after one more step, as `held[rank][chunk]`.

    Args:
        before: what it held before.
        step: how many of the 2 (N - 1) steps of a ring of N ranks have gone before.
    """
    num, rows = len(before), [list(row) for row in before]
    is_adding, turn = step < num - 1, step % (num - 1)
    for rank in range(num):
        chunk = (rank - turn if is_adding else rank + 1 - turn) % num
        to = (rank + 1) % num
        rows[to][chunk] = before[rank][chunk] + (before[to][chunk] if is_adding else 0)
    return rows


def chunks(states: Sequence[State], _: Figure, folio: Folio) -> list[Seen]:
    """The ring of each state, over the ranks of its first run."""
    words, found = folio.ui["play"]["ring"], []
    for state in states:
        num = state.runs[0].run.world_size
        frames = [start(num)]
        for step in range(2 * (num - 1)):
            frames.append(after(frames[-1], step))
        cells = [
            [[_cell(rows, before, r, c) for c in range(num)] for r in range(num)]
            for before, rows in zip([frames[0], *frames], frames, strict=False)
        ]
        told = [
            words["start"],
            *(words["adding"].format(n=n + 1, of=num - 1) for n in range(num - 1)),
            *(words["keeping"].format(n=n + 1, of=num - 1) for n in range(num - 1)),
        ]
        places = [round(n / (len(frames) - 1), 4) for n in range(len(frames))]
        rank = folio.ui["figure"]["rank"]
        named = [[f"{name} {n}" for n in range(num)] for name in (rank, words["chunk"])]
        drawings = both(drawn, dict(zip(places, cells, strict=True)), *named, num)
        said = (
            f"{words}\n{_in_words(rows, rank)}" for words, rows in zip(told, cells, strict=True)
        )
        moments = tuple(zip(places, said, strict=True))
        found.append(Seen(drawings, told[-1], moments=moments))
    return found


def _in_words(rows: Sequence[Sequence[Cell]], rank: str) -> str:
    held = (" · ".join(cell.words for cell in row) for row in rows)
    return "; ".join(f"{rank} {position}: {said}" for position, said in enumerate(held))


def _cell(rows: list[list[int]], before: list[list[int]], rank: int, chunk: int) -> Cell:
    value, whole = rows[rank][chunk], sum(row[chunk] for row in start(len(rows)))
    return Cell(f"{value:,}", value == whole, "above" if value != before[rank][chunk] else "")
