"""Number lines, played: the number that each row of a figure holds, as a program reported it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.kinds.figures.axes import plain
from proofbook.generator.kinds.figures.drawings.line import NumberLine, line
from proofbook.generator.kinds.figures.picture import DrawnState, plain_line
from proofbook.generator.kinds.figures.play.states import PlayState, reported
from proofbook.generator.printing.folio import Folio
from proofbook.runners.core.trace.schema import Setting

DIGITS = 5


def view(states: Sequence[PlayState], figure: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: the rows of its first run, at each of the numbers that are wanted."""
    assert figure.play is not None
    assert figure.play.line is not None
    written, words = figure.play.line, folio.ui["play"]["line"]
    moment = plain_line(written.moment, folio)
    for state in states:
        of_ranks = reported(state.runs[0].run)
        wanted = _numbers(of_ranks[0], written.wanted)
        rows = [
            NumberLine(
                plain_line(row.label, folio),
                _numbers(of_ranks[row.rank], row.numbers), _numbers(of_ranks[row.rank], row.held),
            )
            for row in written.rows
        ]  # fmt: skip
        told = []
        for n, exact in enumerate(wanted):
            first = f"{moment} {n}: {words['wanted']} {plain(exact, DIGITS)}"
            told.append(
                "\n".join([first, *(f"{r.label}: {plain(r.held[n], DIGITS)}" for r in rows)])
            )
        moments = [(round(n / (len(told) - 1), 4), says) for n, says in enumerate(told)]
        draw = partial(line, rows, wanted, (words["wanted"], words["held"]))
        yield DrawnState(draw, told[-1].replace("\n", "; "), moments=tuple(moments))


def _numbers(facts: Mapping[str, Setting], name: str) -> list[float]:
    of_name = facts[name]
    assert isinstance(of_name, list)
    return [float(one) for one in of_name]
