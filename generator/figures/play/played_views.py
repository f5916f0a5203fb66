"""Steps that are played: DDP over a link, and FSDP unit by unit, as rules compute them from runs.

What a run measured of the same step is drawn beside it: when it ended, or the most that it held.
"""

from __future__ import annotations

from collections.abc import Sequence

from generator.content.exhibit import Figure
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.play_states import ShownRun, State
from generator.evidence.units import AS_RULED
from generator.figures import overlap_rule, unit_rule
from generator.figures.drawings import overlap as overlap_drawing
from generator.figures.drawings.schedule import Curve, Mark, schedule
from generator.figures.play.seen import Seen, both, byte_unit, moments, said_bytes

# Of the parts of what is held: shards as in other figures, and what is whole as it travels.
LOOKS = {
    "optimizer": "series-a faint", "parameters": "series-a", "gradients": "series-e",
    "whole_parameters": "communication faint", "whole_gradients": "communication",
    "copies": "communication hollow",
}  # fmt: skip


def overlap(states: Sequence[State], _: Figure, folio: Folio) -> list[Seen]:
    """The step of each state's first run, in the time of its backward, all on the same axis."""
    words = folio.ui["play"]["actions"] | folio.ui["play"]["overlap"]
    names, found = (words["rank"], words["link"]), []
    steps = [_overlapping(state.runs[0]) for state in states]
    longest = max(max(step.end, measured) for step, measured in steps)
    for step, measured in steps:
        rows = dict(zip(names, step, strict=True))
        drawings = both(
            overlap_drawing.overlap, step, names, words["time"], words,
            longest=longest, mark=Mark(measured, words["measured"]),
        )  # fmt: skip
        wait = step.computed[-1]
        waits = units.printed(step.end / wait.start - 1, units.SHARE, AS_RULED)
        says = words["waits"].format(share=waits)
        found.append(Seen(drawings, says, moments=moments(rows, words | words["told"])))
    return found


def _overlapping(one: ShownRun) -> tuple[overlap_rule.Step, float]:
    """The step of a run by the law of time, and how long it was, in the time of its backward."""
    step = overlap_rule.step(one.run.settings, overlaps=one.run.strategy == "ddp")
    backward, timed = one.run.settings["backward_seconds"], one.run.timing.step
    assert isinstance(backward, float)
    assert timed is not None
    return step, timed.median_seconds / backward


def unit_steps(states: Sequence[State], _: Figure, folio: Folio) -> list[Seen]:
    """The step of each state's first run under its curve of memory, all on the same axis."""
    words = folio.ui["play"]["actions"] | folio.ui["play"]["units"]
    runs = [state.runs[0].run for state in states]
    peaks = [max(one.memory.peak_bytes or 0 for one in run.ranks if one.memory) for run in runs]
    unit, size = byte_unit(max(peaks))
    found = []
    for run, peak in zip(runs, peaks, strict=True):
        assert run.model is not None
        sizes = [layer.bytes for layer in run.model.layers]
        step = unit_rule.Step(sizes, run.world_size, frees=run.strategy == "fsdp")
        labels = [*(f"{words['unit']} {n}" for n in range(1, len(sizes))), words["root"]]
        rows = dict(zip(labels, step.rows, strict=True))
        parts = [
            (words["held"][name], LOOKS[name], [one[name] / size for one in step.held])
            for name in unit_rule.PARTS
        ]
        title = f"{unit} {folio.ui['figure']['per_rank']}"
        mark = Mark(peak / size, f"{words['measured']} {said_bytes(peak)}")
        curve = Curve(title, parts, max(peaks) / size, mark)
        drawings = both(schedule, rows, words["events"], words, curve=curve)

        def more(time: float, step: unit_rule.Step = step) -> str:
            held = sum(step.held[min(int(time), len(step.held) - 1)].values())
            most = words["peak"] if held == step.peak_bytes else ""
            return f"{words['holds']} {said_bytes(held)}{most}"

        says = f"{words['measured']} {said_bytes(peak)}"
        found.append(Seen(drawings, says, moments=moments(rows, words, more)))
    return found
