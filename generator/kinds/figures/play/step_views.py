"""Steps that are played, as rules compute them from runs: of a pipeline, DDP, tensor ranks, FSDP.

What a run measured of the same step is drawn beside it: when it ended, or the most that it held.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.kinds.figures import step_rules
from proofbook.generator.kinds.figures.axes import AxisMark, round_values
from proofbook.generator.kinds.figures.drawings import schedule as timeline
from proofbook.generator.kinds.figures.picture import DrawnState, Moment, byte_unit, printed_bytes
from proofbook.generator.kinds.figures.play.states import PlayState
from proofbook.generator.kinds.figures.step_rules import Action, number
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values import units
from proofbook.runners.core.trace.records import Run

# Of the parts of what is held, as in other figures: a gradient is grey, whole or not.
LOOKS = {
    "optimizer": "series-a faint", "parameters": "series-a", "gradients": "series-e hollow shard",
    "whole_parameters": "gather faint", "whole_gradients": "series-e",
    "copies": "gather hollow",
}  # fmt: skip


def schedule(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: the pipeline schedules of its runs by rule, and shares of idling.

    Each state has an axis of its own: forward passes of another number of microbatches last another
    time.
    """
    words = folio.ui["play"]["actions"]
    is_split = any(state.runs[0].run.settings["num_microbatches"] != 1 for state in states)
    for state in states:
        steps = {labelled.label: _pipeline(labelled.run) for labelled in state.runs}
        groups = [title for title in steps if title]
        rows = {
            f"{title}, rank {rank}".removeprefix(", "): actions
            for title, step in steps.items()
            for rank, actions in enumerate(step)
        }
        loads = [step_rules.in_flight(actions) for actions in rows.values()] if is_split else []
        draw = partial(
            timeline.schedule, rows, "time, in forward passes", words, loads=loads, groups=groups
        )
        idle = {
            title: units.printed(step_rules.idle_share(step), units.SHARE, units.AS_RULED)
            for title, step in steps.items()
        }
        says = "; ".join(
            f"{title} idle, computed: {share}".strip() for title, share in idle.items()
        )
        yield DrawnState(draw, says, moments=_moments(rows, words, groups=groups))


def _pipeline(run: Run) -> list[list[Action]]:
    ratio, num = (number(run.settings[n]) for n in ("backward_ratio", "num_microbatches"))
    return step_rules.pipeline(run.strategy, run.world_size, int(num), ratio)


def overlap(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: a DDP step computed from its first run; the measured end.

    The states of one step, with and without overlap, have the same axis.
    """
    words = folio.ui["play"]["actions"] | folio.ui["play"]["overlap"]
    runs = [state.runs[0].run for state in states]
    steps = [step_rules.overlapped(run.settings, overlaps=run.strategy == "ddp") for run in runs]
    ends = [1000 * run.timing.step.median_seconds for run in runs if run.timing.step]
    for run, step, measured in zip(runs, steps, ends, strict=True):
        longest = max(
            max(end, other.end)
            for of, other, end in zip(runs, steps, ends, strict=True)
            if of.settings == run.settings
        )
        rows, mark = {"rank": step.computed, "link": step.sent}, AxisMark(measured, "measured")
        draw = partial(timeline.overlap, step, rows, "time, ms", words, longest=longest, mark=mark)
        waits = units.printed(step.end / step.computed[-1].start - 1, units.SHARE, units.AS_RULED)
        moments = _moments(rows, words | words["moments"])
        says = f"Waits after backward, computed, as a share of forward and backward: {waits}"
        yield DrawnState(draw, says, moments=moments)


def arrivals(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: a step of products whose tokens arrive from other ranks; its end."""
    runs = [state.runs[0].run for state in states]
    steps = [
        step_rules.arrivals(run.settings, run.world_size, waits=run.strategy == "gather_first")
        for run in runs
    ]
    ranks = [range(run.world_size) for run in runs]
    labels = [[(f"rank {n}", f"{(n - 1) % len(of)} → {n}") for n in of] for of in ranks]
    yield from _over_links(runs, steps, labels, folio.ui["play"]["arrivals"], folio)


def turns(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: microbatches in turns on a rank and on its link; the step's end."""
    words = folio.ui["play"]["turns"]
    runs = [state.runs[0].run for state in states]
    steps = [step_rules.turns(run.settings, run.strategy) for run in runs]
    labels = [[(words["rank"], words["link"])] for _ in runs]
    yield from _over_links(runs, steps, labels, words, folio)


def _over_links(
    runs: Sequence[Run],
    steps: Sequence[list[list[Action]]],
    labels: Sequence[Sequence[tuple[str, str]]],
    own_words: Mapping[str, str],
    folio: Folio,
) -> Iterator[DrawnState]:
    """Rows of ranks and of links by turns; runs of the same computation have the same axis."""
    words = folio.ui["play"]["actions"] | own_words
    ends = [max(action.end for row in step for action in row) for step in steps]
    for run, step, end, rows_of in zip(runs, steps, ends, labels, strict=True):
        rows = dict(zip(chain(*rows_of), step, strict=True))
        longest = max(
            other_end
            for other, other_end in zip(runs, ends, strict=True)
            if other.settings["computing_seconds"] == run.settings["computing_seconds"]
        )
        measured = run.timing.step
        mark = AxisMark(1000 * measured.median_seconds, "measured") if measured else None
        draw = partial(timeline.schedule, rows, "time, ms", words, longest=longest, mark=mark)
        waits = end / 1000 / number(run.settings["computing_seconds"]) - 1
        share = units.printed(waits, units.SHARE, units.AS_RULED)
        yield DrawnState(draw, words["says"].format(share=share), moments=_turns(step, words))


def _turns(rows: Sequence[Sequence[Action]], words: Mapping[str, str]) -> tuple[Moment, ...]:
    """From each moment on, what the ranks multiply and what is on its way to them, by rank."""
    times = sorted({round(at, 9) for row in rows for act in row for at in (act.start, act.end)})
    told = []
    for time in times[:-1]:
        says = []
        for key, of_ranks in (("multiplied", rows[::2]), ("arriving", rows[1::2])):
            actions = (act for row in of_ranks for act in row)
            parts = [act.name for act in actions if act.start - 1e-9 <= time < act.end - 1e-9]
            says += [words[key].format(parts=", ".join(dict.fromkeys(parts)))] if parts else []
        told.append((round(time / times[-1], 4), " ".join(says)))
    return (*told, (1.0, words["done"]))


def unit_steps(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: an FSDP step by rule for its first run's layers; the bytes held."""
    words = folio.ui["play"]["actions"] | folio.ui["play"]["units"]
    runs = [state.runs[0].run for state in states]
    peaks = [max(rank.memory.peak_bytes or 0 for rank in run.ranks if rank.memory) for run in runs]
    unit, size = byte_unit(max(peaks))
    title, ticks = f"{unit} per rank", round_values(0, max(peaks) / size, 4)
    for run, peak in zip(runs, peaks, strict=True):
        assert run.model is not None
        sizes = [layer.bytes for layer in run.model.layers]
        step = step_rules.unit_step(sizes, run.world_size, frees=run.strategy == "fsdp")
        labels = [*(f"unit {n}" for n in range(1, len(sizes))), "root"]
        rows = dict(zip(labels, step.rows, strict=True))
        parts = [
            (words["held"][name], look, [held[name] / size for held in step.held])
            for name, look in LOOKS.items()
        ]
        says = f"measured peak {printed_bytes(peak)}"
        curve = timeline.Curve(title, ticks, parts, AxisMark(peak / size, says))
        totals = [sum(held.values()) for held in step.held]
        told = [
            f"the rank holds {printed_bytes(total)}{', the peak' * (total == max(totals))}"
            for total in totals
        ]
        draw = partial(
            timeline.schedule, rows, "events of a step, in their order", words, curve=curve
        )
        yield DrawnState(draw, says, moments=_moments(rows, words, told))


def _moments(
    rows: Mapping[str, Sequence[Action]], words: Mapping[str, str], held: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> tuple[Moment, ...]:  # fmt: skip
    """The actions under way from each moment on, in `words`, and what is `held` in each event.

    Of rows in groups, how many of each group compute.
    """
    actions = [(row, action) for row, row_actions in rows.items() for action in row_actions]
    end = max(action.end for _, action in actions)
    told = []
    for time in sorted({round(at, 9) for _, act in actions for at in (act.start, act.end)}):
        now = [
            (row, f"{row}: {words[action.kind]} {action.name}".rstrip())
            for row, action in actions
            if action.kind != "whole" and action.start - 1e-9 <= time < action.end - 1e-9
        ]
        phrases = [phrase for _, phrase in now] or [words["done"]]
        if groups and now:
            busy = [sum(row.startswith(f"{title}, ") for row, _ in now) for title in groups]
            size = len(rows) // len(groups)
            counted = zip(groups, busy, strict=True)
            phrases = [f"{title}: {num} of {size} ranks compute" for title, num in counted]
        phrases += held[min(int(time), len(held) - 1) :][:1]
        joined = "; ".join(phrases)
        told.append((round(time / end, 4), f"{joined[:1].upper()}{joined[1:]}."))
    return tuple(told)
