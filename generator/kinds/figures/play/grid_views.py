"""What each rank holds, played: a ring all-reduce, a block under tensor parallelism, any report.

The rule of the ring is that of `ring_all_reduce_by_hand.py`: in the reduce-scatter rank r sends
chunk r - s and adds what it receives; in the all-gather it sends chunk r + 1 - s and keeps what it
receives. Each rank begins with a decimal digit of its own.

The rule of the block is that of `runners/training/split.py`: query, key, value and the first layer
of the MLP are cut by columns, the other two by rows. Partial sums meet after the latter two in
forward, and in backward before the former. Under sequence parallelism, ranks divide the tokens of
these sums, and gather them before each cut by columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Literal

from proofbook.generator.content.exhibit import CellRow, Figure
from proofbook.generator.kinds.figures.axes import plain
from proofbook.generator.kinds.figures.drawings.chunks import BESIDE, LOOKS, Cell, chunks
from proofbook.generator.kinds.figures.picture import DrawnState, plain_line, printed_bytes
from proofbook.generator.kinds.figures.play.states import PlayState, reported
from proofbook.generator.printing.folio import Folio
from proofbook.runners.core.trace.schema import Setting

Held = list[list[Cell | None]]
# What each rank holds of a result: all of it, its columns or heads, its part of a sum, its tokens.
Holds = Literal["whole", "own", "partial", "tokens"]
Results = dict[str, tuple[Holds, str]]  # by name: what is held, and the collective that made it
# What a block computes, in the order of forward, by the strategy of its run.
FORWARD: dict[str, Results] = {
    "split": {
        "input": ("whole", ""), "qkv": ("own", ""), "heads": ("own", ""), "out": ("partial", ""),
        "attended": ("whole", "all_reduce"), "up": ("own", ""), "down": ("partial", ""),
        "output": ("whole", "all_reduce"),
    },
    "sequence": {
        "input": ("tokens", ""), "gathered": ("whole", "all_gather"), "qkv": ("own", ""),
        "heads": ("own", ""), "out": ("partial", ""), "attended": ("tokens", "reduce_scatter"),
        "gathered_again": ("whole", "all_gather"), "up": ("own", ""), "down": ("partial", ""),
        "output": ("tokens", "reduce_scatter"),
    },
}  # fmt: skip
# The gradients of these results, in the order of backward.
BACKWARD: dict[str, Results] = {
    "split": {
        "output": ("whole", ""), "down": ("whole", ""), "up": ("own", ""),
        "attended": ("whole", "all_reduce"), "out": ("whole", ""), "heads": ("own", ""),
        "qkv": ("own", ""), "input": ("whole", "all_reduce"),
    },
    "sequence": {
        "output": ("tokens", ""), "down": ("whole", "all_gather"), "up": ("own", ""),
        "gathered_again": ("partial", ""), "attended": ("tokens", "reduce_scatter"),
        "out": ("whole", "all_gather"), "heads": ("own", ""), "qkv": ("own", ""),
        "gathered": ("partial", ""), "input": ("tokens", "reduce_scatter"),
    },
}  # fmt: skip


def passes(strategy: str) -> dict[str, Results]:
    """The results of forward and the gradients of backward, of a strategy that splits a block."""
    kind = "sequence" if strategy == "sequence" else "split"
    return {"forward": FORWARD[kind], "backward": BACKWARD[kind]}


def _played(
    frames: Sequence[Held], told: Sequence[str], says: str, grid: tuple[list[str], list[str], int],
    groups: Sequence[str] = (),
) -> DrawnState:  # fmt: skip
    """A state drawn as a grid, with a frame and words for each of its moments."""
    moments = [round(n / (len(frames) - 1), 4) for n in range(len(frames))]
    by_moment = dict(zip(moments, frames, strict=True))
    draw = partial(chunks, by_moment, *grid, groups=groups)
    return DrawnState(draw, says, moments=tuple(zip(moments, told, strict=True)))


# --- the ring


def start(num: int) -> list[list[int]]:
    """Chunks of each rank before a ring: rank 0 holds 1, 2, 3, rank 1 holds 10, 20, 30."""
    return [[(chunk + 1) * 10**rank for chunk in range(num)] for rank in range(num)]


def after(before: Sequence[Sequence[int]], step: int) -> list[list[int]]:
    """After step `step` of a ring's 2 (N - 1), what ranks hold, from `before`: `[rank][chunk]`."""
    num, rows = len(before), [list(row) for row in before]
    is_adding, turn = step < num - 1, step % (num - 1)
    for rank in range(num):
        chunk = (rank - turn if is_adding else rank + 1 - turn) % num
        to = (rank + 1) % num
        rows[to][chunk] = before[rank][chunk] + (before[to][chunk] if is_adding else 0)
    return rows


def ring(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: a ring all-reduce among its first run's ranks, of sample digits."""
    words = folio.ui["play"]["ring"]
    for state in states:
        num = state.runs[0].run.world_size
        frames = [start(num)]
        for step in range(2 * (num - 1)):
            frames.append(after(frames[-1], step))
        told = [words["start"]]
        told += [
            words[do].format(n=n, of=num - 1) for do in ("adding", "keeping") for n in range(1, num)
        ]
        cells = [_cells(*pair) for pair in zip([frames[0], *frames], frames, strict=False)]
        ranks, names = ([f"{name} {n}" for n in range(num)] for name in ("rank", words["chunk"]))
        says = [f"{title}\n{_in_words(rows)}" for title, rows in zip(told, cells, strict=True)]
        yield _played(cells, says, told[-1], (ranks, names, num))


def _in_words(rows: Held) -> str:
    held = (" · ".join(cell.words for cell in row if cell) for row in rows)
    return "; ".join(f"rank {position}: {words}" for position, words in enumerate(held))


def _cells(before: list[list[int]], held: list[list[int]]) -> Held:
    """The cells of a frame, with an arrow to each that changed; a sum of all ranks is whole."""
    whole = [sum(column) for column in zip(*start(len(held)), strict=True)]
    return [
        [
            Cell(f"{value:,}", value == whole[chunk], "above" if value != was else "")
            for chunk, (was, value) in enumerate(zip(*rows, strict=True))
        ]
        for rows in zip(before, held, strict=True)
    ]


# --- the block


def block(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: shapes its first run's ranks hold of a block split over them."""
    words = folio.ui["play"]["block"]
    for state in states:
        run = state.runs[0].run
        sizes = {name: value for name, value in run.settings.items() if isinstance(value, int)}
        num, size = run.world_size, printed_bytes(sizes["hidden_state_bytes"])
        ways = passes(run.strategy)
        rows = list(ways["forward"])
        columns = [f"rank {n}" for _ in ways for n in range(num)]
        frames: list[Held] = [[[None] * len(columns) for _ in rows]]
        told, num_sent = [], 0
        for way, results in ways.items():
            for name, (holds, operation) in results.items():
                frames.append([list(row) for row in frames[-1]])
                first = num if way == "backward" else 0
                came = f"all {'above' if way == 'forward' else 'below'}" if operation else ""
                frames[-1][rows.index(name)][first : first + num] = [
                    _cell(holds, name, n, sizes, num, words, came) for n in range(num)
                ]
                sent = " " + words["sent"][operation].format(size=size) if operation else ""
                told.append(f"{words[way].capitalize()}: {words['rows'][name]}.{sent}")
                num_sent += bool(operation)
        says = words["says"].format(n=num_sent, size=size)
        grid = [words["rows"][name] for name in rows], columns, num
        yield _played(frames[1:], told, says, grid, [words[way] for way in ways])


def _cell(
    holds: Holds, name: str, rank: int, sizes: dict[str, int], ranks: int,
    words: dict[str, str], came: str,
) -> Cell:  # fmt: skip
    """The shape that a rank holds after an operation, tokens by features."""
    tokens, width = sizes["num_tokens_per_step"], sizes["width"]
    if holds == "partial":
        return Cell(words["partial"], is_whole=False)
    if holds == "whole":
        return Cell(f"{tokens} × {width}", is_whole=True, came=came)
    if holds == "tokens":
        return Cell(f"{tokens // ranks} × {width}", is_whole=False, came=came)
    if name == "heads":
        each = sizes["num_heads"] // ranks
        first, last = rank * each, (rank + 1) * each - 1
        own = f"{first}–{last}" if each > 1 else f"{first}"
        return Cell(words["own_heads"].format(heads=own), is_whole=False)
    features = {"qkv": 3 * width, "up": sizes["hidden"]}[name]
    return Cell(f"{tokens} × {features // ranks}", is_whole=False)


# --- cells of a report

DIGITS = 3  # of a number in a cell
MOST_NAMED = 4  # ranks over whose columns there is room for the word


def cells(states: Sequence[PlayState], figure: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: rows of what its first run's ranks reported, one after the other."""
    assert figure.play is not None
    rows = figure.play.cells
    labels = [plain_line(row.label or "", folio) for row in rows]
    for state in states:
        of_ranks = reported(state.runs[0].run)
        held: Held = []
        for row in rows:
            held.append(_reported(row, of_ranks, held))
        said = [
            f"{label}: {_in_words([[cell] for cell in line])}".removeprefix(": ")
            for label, line in zip(labels, held, strict=True)
        ]
        nothing: list[Cell | None] = [None] * len(of_ranks)
        frames: list[Held] = []
        told, first = [], 0
        for num, row in enumerate(rows, 1):
            if row.told:
                frames.append([*held[:num], *[nothing] * (len(rows) - num)])
                told.append("\n".join([plain_line(row.told, folio), *said[first:num]]))
                first = num
        several = len(of_ranks) > MOST_NAMED
        ranks = [str(n) if several else f"rank {n}" for n in range(len(of_ranks))]
        yield _played(frames, told, "; ".join(said), (labels, ranks, len(of_ranks)))


def _reported(
    row: CellRow, of_ranks: Sequence[Mapping[str, Setting]], above: Held
) -> list[Cell | None]:
    """The cells of a row, a list as one number beside the other; what all ranks have is whole."""
    held = [_words(facts[row.fact]) for facts in of_ranks]
    looks: list[list[str]] = [[] for _ in held]
    if row.colours:
        looks = [[LOOKS[int(n)] for n in _words(facts[row.colours])] for facts in of_ranks]
    elif row.keeps_colours:
        looks = _kept(held, above)
    came, is_whole = "numbers" if looks[0] else "all above", held[1:] == held[:-1]
    return [
        Cell(BESIDE.join(words), is_whole, came * row.from_all, tuple(look))
        for words, look in zip(held, looks, strict=True)
    ]


def _kept(held: Sequence[Sequence[str]], above: Held) -> list[list[str]]:
    """The looks of the same numbers in a row above, or else of those at the same places."""
    for row in reversed(above):
        pairs = (zip(cell.words.split(BESIDE), cell.looks, strict=False) for cell in row if cell)
        looks = dict(chain.from_iterable(pairs))
        if looks.keys() == {*chain.from_iterable(held)}:
            return [[looks[word] for word in words] for words in held]
    return [list(cell.looks) for cell in above[-1] if cell]


def _words(fact: Setting) -> list[str]:
    parts = fact if isinstance(fact, list) else [fact]
    return [plain(one, DIGITS) if isinstance(one, int | float) else str(one) for one in parts]
