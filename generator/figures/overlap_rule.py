"""When layers compute and their gradients travel in a step of DDP: the law of time, no clock.

A layer's gradient is a bucket of its own. It is ready when the layer's backward ends, from the last
layer to the first, and the link sends one bucket after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from generator.figures.schedule_rule import Action, number
from runners.traces.schema import Setting


class Step(NamedTuple):
    """What a rank computes, until it waits, and what its link sends; layers count from 1."""

    computed: list[Action]
    sent: list[Action]

    @property
    def end(self) -> float:
        """When the last gradient has arrived."""
        return self.sent[-1].end


def step(settings: Mapping[str, Setting], *, overlaps: bool) -> Step:
    """The step that the settings of a run of `overlap` describe, in the time of its backward.

    Args:
        settings: how many layers, and for how long all of them compute and send.
        overlaps: whether buckets are sent while backward goes on, or all gradients in one after it.
    """
    names = ("num_layers", "computing_seconds", "backward_seconds", "reducing_seconds")
    num, whole, backward, reducing = (number(settings[name]) for name in names)
    layers = range(1, int(num) + 1)
    forward, sending = (whole / backward - 1) / num, reducing / backward / num
    computed = [Action("forward", str(n), (n - 1) * forward, n * forward) for n in layers]
    sent: list[Action] = []
    for layer in reversed(layers):
        start = computed[-1].end
        computed.append(Action("backward", str(layer), start, start + 1 / num))
        ready = max(start + 1 / num, sent[-1].end if sent else 0)
        sent.append(Action("reduce", str(layer), ready, ready + sending))
    if not overlaps:
        end = computed[-1].end
        sent = [Action("reduce", f"1–{layers[-1]}", end, end + num * sending)]
    computed.append(Action("wait", "", computed[-1].end, sent[-1].end))
    return Step(computed, sent)
