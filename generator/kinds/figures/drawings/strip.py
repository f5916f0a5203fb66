"""A strip of tensors in the order of a model: how far each is from that of one process.

The error of a tensor, over what rounding allows it, is a bar on a logarithmic axis. A bar that
crosses the dashed line is no rounding; the first of these has its name.
"""

from collections.abc import Sequence
from typing import NamedTuple

from proofbook.generator.kinds.figures.axes import SAMPLE, Scale
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth, text_width

HEIGHT = 110  # of the bars
LEAST, MOST = 1e-3, 10.0  # of the axis; more where a bar needs it
GAP = 2
CLEAR = 3  # pixels by which a bar is seen, or seen to cross the line


class Bar(NamedTuple):
    """The bar of a tensor."""

    name: str  # of the parameter
    says: str  # what the bar shows, in words
    times: float | None  # its error over what rounding allows; None where it was not compared


def strip(bars: Sequence[Bar], allowed: str, layout: PageWidth) -> Drawing:
    """`Drawing` of errors as bars on a log scale, a line `allowed` at 1, the first above named."""
    drawing = Drawing(layout.width, LINE + HEIGHT + LINE)
    bottom, step = LINE + HEIGHT, layout.width / max(len(bars), 1)
    largest = max([MOST, *(bar.times for bar in bars if bar.times is not None)])
    up = Scale(LEAST, largest, bottom, LINE, is_logarithmic=True)
    gap = GAP if step > 3 * GAP else 0
    for place, bar in enumerate(bars):
        differs = bar.times is not None and bar.times > 1
        top = bottom - 6 if bar.times is None else up(max(bar.times, LEAST))
        top = min(top, up(1) - CLEAR if differs else bottom - CLEAR)
        look = "idle" if bar.times is None else "communication" if differs else "compute faint"
        width = min(step - gap, 40)
        drawing.box(place * step, top, width, bottom - top, look, say=bar.says)
    drawing.line(0, bottom, layout.width, bottom, "axis")
    drawing.line(0, up(1), layout.width, up(1), "budget")
    drawing.line(0, bottom + LINE / 2, SAMPLE, bottom + LINE / 2, "budget")
    drawing.word(SAMPLE + GAP * 4, bottom + LINE / 2, allowed, "soft")
    first = next((n for n, bar in enumerate(bars) if (bar.times or 0) > 1), None)
    if first is not None:
        at = max(0, min(first * step, layout.width - text_width(bars[first].name)))
        drawing.word(at, LINE / 2, bars[first].name)
    return drawing
