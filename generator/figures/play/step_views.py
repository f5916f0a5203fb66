"""What happens in one step, and from step to step: schedules, payloads, losses."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from generator.content.exhibit import Figure
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.play_states import ShownRun, State
from generator.evidence.units import AS_RULED
from generator.figures import schedule_rule
from generator.figures.drawing import Drawing, Layout
from generator.figures.drawings import bars as bars_drawing
from generator.figures.drawings import schedule as schedule_drawing
from generator.figures.drawings.bars import Bar
from generator.figures.drawings.lines import Series, lines
from generator.figures.play.seen import Seen, both, byte_unit, in_lines, moments, said_bytes
from runners.traces.records import RankRecord

EVERY, MOST = 16, 32  # of a line over more steps, each so many-th point can be read off


def schedule(states: Sequence[State], _: Figure, folio: Folio) -> list[Seen]:
    """The schedule that each state's first run declares, computed by its rule.

    Each has an axis of its own: forward passes of another number of microbatches last another time.
    """
    words, rank = folio.ui["play"], folio.ui["figure"]["rank"]
    found, all_rows = [], []
    for state in states:
        run = state.runs[0].run
        ratio = run.settings["backward_ratio"]
        microbatches = run.settings["num_microbatches"]
        assert isinstance(ratio, int | float)
        assert isinstance(microbatches, int)
        rule = "gpipe" if microbatches == 1 else run.strategy
        all_rows.append(schedule_rule.rows(rule, run.world_size, microbatches, ratio))
    for rows in all_rows:
        idle = units.printed(schedule_rule.idle_share(rows), units.SHARE, AS_RULED)
        named = {f"{rank} {n}": actions for n, actions in enumerate(rows)}
        loads = [schedule_rule.in_flight(actions) for actions in rows]
        drawings = both(
            schedule_drawing.schedule, named, words["forwards"], words["actions"], loads=loads
        )
        said = f"{words['idle_by_rule']}: {idle}"
        found.append(Seen(drawings, said, moments=moments(named, words["actions"])))
    return found


def payload(states: Sequence[State], _: Figure, folio: Folio) -> list[Seen]:
    """What the rank with the largest payload passed to each operation in a step."""
    busiest = {one.path: _busiest(one) for state in states for one in state.runs}
    most = max((c.bytes for rank in busiest.values() for c in rank.collectives), default=0)
    unit, size = byte_unit(most)
    title = f"{unit} {folio.ui['figure']['per_step']}"
    found = []
    for state in states:
        bars = [bar for one in state.runs for bar in _bars(one, busiest[one.path], size, folio)]
        found.append(
            Seen(
                both(bars_drawing.bars, bars, title, most / size),
                "; ".join(f"{bar.label}: {bar.words}" for bar in bars),
                tuple(_payload_cells(one, busiest[one.path], folio) for one in state.runs),
            )
        )
    return found


def _busiest(one: ShownRun) -> RankRecord:
    return max(one.run.ranks, key=lambda rank: sum(c.bytes for c in rank.collectives))


def _bars(one: ShownRun, rank: RankRecord, size: float, folio: Folio) -> list[Bar]:
    bars = [
        Bar(
            group=one.path,
            label=" · ".join(filter(None, (one.label, c.operation))),
            size=c.bytes / size,
            words=f"{said_bytes(c.bytes)} {_in_calls(c.count, folio)}",
            say=f"{c.operation}: {said_bytes(c.bytes)} {_in_calls(c.count, folio)}",
        )
        for c in rank.collectives
    ]
    nothing = Bar(one.path, one.label, 0, folio.ui["play"]["nothing_sent"])
    return bars or [nothing]


def _in_calls(count: int, folio: Folio) -> str:
    """In how many calls a payload was passed, as words for a drawing."""
    words: str = folio.ui["play"]["in_one_call" if count == 1 else "in_calls"]
    return words.format(n=f"{count:,}")


def _payload_cells(one: ShownRun, rank: RankRecord, folio: Folio) -> dict[str, Markup]:
    at = f"{one.path}.ranks[{one.run.ranks.index(rank)}]"
    passed = {
        c.operation: folio.cell(f"{at}.collectives['{c.operation}'].bytes")
        for c in rank.collectives
    }
    return in_lines(folio.ui["plan"]["sends"], passed)


def loss(states: Sequence[State], _: Figure, folio: Folio) -> list[Seen]:
    """The loss of each step, a line a run, all on the same axes."""
    every = [
        loss for state in states for one in state.runs for loss in one.run.step_losses
        if loss is not None
    ]  # fmt: skip
    if not every:
        return []
    words, between = folio.ui["play"], (min(every), max(every))
    found = []
    for state in states:
        series = [_line(one, folio) for one in state.runs]
        found.append(
            Seen(
                both(_lines, series, words["steps"], between),
                "; ".join(f"{one.name}: {one.says[-1]}" for one in series),
            )
        )
    return found


def _lines(
    series: Sequence[Series], title: str, between: tuple[float, float], layout: Layout
) -> Drawing:
    return lines(series, title, is_share=False, width=layout.width, between=between)


def _line(one: ShownRun, folio: Folio) -> Series:
    name = one.label or folio.strategy(one.run)
    known = [(n, loss) for n, loss in enumerate(one.run.step_losses, 1) if loss is not None]
    says = [
        f"{name}, {folio.ui['play']['steps']} {n}: {units.printed(loss, units.LOSS, AS_RULED)}"
        if len(known) <= MOST or n % EVERY == 0 or n == len(known)
        else ""
        for n, loss in known
    ]
    return Series(name, tuple((float(n), loss) for n, loss in known), tuple(says))
