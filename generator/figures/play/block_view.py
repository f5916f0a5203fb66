"""A transformer block under tensor parallelism, played operation by operation.

The rule is that of `runners/training/split.py`: query, key, value and the first layer of the MLP
are cut by columns, the other two by rows. Partial sums meet after the latter two in forward, and
in backward before the former.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.evidence.play_states import State
from generator.figures.drawings.chunks import Cell, Rows
from generator.figures.drawings.chunks import chunks as drawn
from generator.figures.play.seen import Seen, both, said_bytes

Holds = Literal["whole", "own", "partial"]
# What the block computes, in the order of forward, and what each rank then holds of it.
FORWARD: dict[str, Holds] = {
    "input": "whole", "qkv": "own", "heads": "own", "out": "partial", "attended": "whole",
    "up": "own", "down": "partial", "output": "whole",
}  # fmt: skip
# Of whose results backward holds the gradient on each rank: whole, but for what is cut by columns.
BACKWARD: dict[str, Holds] = {
    name: "own" if holds == "own" else "whole" for name, holds in reversed(FORWARD.items())
}
SUMS = {"forward": ("attended", "output"), "backward": ("attended", "input")}


class Step(NamedTuple):
    """One operation: of which pass, whose result, and whether an all-reduce made it whole."""

    direction: Literal["forward", "backward"]
    name: str
    is_summed: bool


def steps() -> Iterator[Step]:
    """All operations of a block, forward and then backward."""
    for name in FORWARD:
        yield Step("forward", name, name in SUMS["forward"])
    for name in BACKWARD:
        yield Step("backward", name, name in SUMS["backward"])


def block(states: Sequence[State], _: Figure, folio: Folio) -> list[Seen]:
    """The first block of each state's first run, on all its ranks."""
    words, rank = folio.ui["play"]["block"], folio.ui["figure"]["rank"]
    found = []
    for state in states:
        run = state.runs[0].run
        sizes = {name: value for name, value in run.settings.items() if isinstance(value, int)}
        ranks = range(run.world_size)
        columns = [f"{rank} {n}" for _ in SUMS for n in ranks]
        frames: list[list[list[Cell | None]]] = []
        told = []
        held: list[list[Cell | None]] = [[None] * len(columns) for _ in FORWARD]
        for step in steps():
            held = [[_still(cell) for cell in row] for row in held]
            row = list(FORWARD).index(step.name)
            for n in ranks:
                column = n + (step.direction == "backward") * run.world_size
                held[row][column] = _cell(step, n, sizes, run.world_size, words)
            frames.append(held)
            sent = words["summed"].format(size=said_bytes(sizes["hidden_state_bytes"]))
            told.append(
                f"{words[step.direction].capitalize()}: {words['rows'][step.name]}."
                + f" {sent}" * step.is_summed
            )
        places = [round(n / (len(frames) - 1), 4) for n in range(len(frames))]
        rows: dict[float, Rows] = dict(zip(places, frames, strict=True))
        drawings = both(
            drawn, rows, list(words["rows"].values()), columns, run.world_size,
            groups=[words[one] for one in SUMS],
        )  # fmt: skip
        sums = sum(len(one) for one in SUMS.values())
        says = words["says"].format(n=sums, size=said_bytes(sizes["hidden_state_bytes"]))
        found.append(Seen(drawings, says, moments=tuple(zip(places, told, strict=True))))
    return found


def _still(cell: Cell | None) -> Cell | None:
    return cell and Cell(cell.words, cell.is_whole)


def _cell(step: Step, rank: int, sizes: dict[str, int], ranks: int, words: dict[str, str]) -> Cell:
    """What a rank holds after an operation, as its shape: tokens by features."""
    holds = (FORWARD if step.direction == "forward" else BACKWARD)[step.name]
    tokens, width = sizes["num_tokens_per_step"], sizes["width"]
    if holds == "partial":
        return Cell(words["partial"], is_whole=False)
    if holds == "whole":
        came: Literal["", "all above", "all below"] = ""
        if step.is_summed:
            came = "all above" if step.direction == "forward" else "all below"
        return Cell(f"{tokens} × {width}", is_whole=True, came=came)
    if step.name == "heads":
        each = sizes["num_heads"] // ranks
        own = ", ".join(str(rank * each + n) for n in range(each))
        return Cell(words["own_heads"].format(heads=own), is_whole=False)
    if step.name == "qkv":
        return Cell(f"{tokens} × {3 * width // ranks}", is_whole=False)
    return Cell(f"{tokens} × {sizes['hidden'] // ranks}", is_whole=False)
