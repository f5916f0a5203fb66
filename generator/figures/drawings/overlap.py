"""A step of DDP as it goes: the state of each layer's gradient over what rank and link do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from generator.figures.drawing import Drawing, Layout
from generator.figures.drawings.schedule import Mark, schedule
from generator.figures.overlap_rule import Step

TOP, HEIGHT, APART = 22, 30, 6
UNDER = TOP + HEIGHT + 12  # where the rows begin
LOOKS = {
    "forward": ("compute faint", ""),
    "backward": ("compute", "ground"),
    "ready": ("collective", "communication"),
    "sent": ("communication", "ground"),
    "averaged": ("layer", ""),
}


def overlap(
    step: Step, names: tuple[str, str], unit: str, words: Mapping[str, str], layout: Layout,
    *, longest: float, mark: Mark,
) -> Drawing:  # fmt: skip
    """Draw a step.

    Args:
        step: what is drawn.
        names: of the rows: the rank, and its link.
        unit: title of the axis.
        words: names of actions, of the states of a gradient, and `layer`.
        layout: the room there is.
        longest: where the axis ends at least.
        mark: when the step was over in the run.
    """
    rows = dict(zip(names, step, strict=True))
    drawing = schedule(rows, unit, words, layout, upper=UNDER, longest=longest, mark=mark)
    num = len(step.computed) // 2
    width = (layout.width + APART) / num
    for layer in range(1, num + 1):
        x, middle = (layer - 1) * width, TOP + HEIGHT / 2
        drawing.word(x + (width - APART) / 2, 10, f"{words['layer']} {layer}", "soft", "middle")
        drawing.box(x, TOP, width - APART, HEIGHT, "idle", radius=4)
        for state, start, end in states(step, layer):
            look, letters = LOOKS[state]
            with drawing.during(start, end):
                drawing.box(x, TOP, width - APART, HEIGHT, look, radius=4)
                drawing.word(x + (width - APART) / 2, middle, words[state], letters, "middle")
    return drawing


def states(step: Step, layer: int) -> Iterator[tuple[str, float, float]]:
    """What is seen of a layer's gradient from when to when, in parts of the step."""
    forward, backward = (one for one in step.computed if one.name == str(layer))
    sent = next((one for one in step.sent if one.name == str(layer)), step.sent[-1])
    times = [backward.start, backward.end, sent.start, sent.end, 2 * step.end]
    names = ("backward", "ready", "sent", "averaged")
    found = [("forward", forward.start, forward.end)]
    found += [(name, *ends) for name, ends in zip(names, pairwise(times), strict=True)]
    for state, start, end in found:
        if end > start + 1e-9:
            yield state, round(start / step.end, 4), round(end / step.end, 4)
