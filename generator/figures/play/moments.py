"""What a play tells: the moments at which something begins or ends, each in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from generator.figures.schedule_rule import Action

# A part of the play, from 0 to 1, and what goes on from then on; below it, in words, what is drawn.
Moment = tuple[float, str]


def moments(
    rows: Mapping[str, Sequence[Action]], words: Mapping[str, str],
    more: Callable[[float], str] = lambda _: "",
) -> tuple[Moment, ...]:  # fmt: skip
    """The actions under way from each moment on.

    Args:
        rows: the actions of each, by its name.
        words: names of actions, and `done`, for a moment without any.
        more: what else there is to say of a time.
    """
    actions = [(row, one) for row, found in rows.items() for one in found]
    end = max(one.end for _, one in actions)
    told = []
    for time in sorted({round(at, 9) for _, one in actions for at in (one.start, one.end)}):
        now = [
            f"{row}: {words[one.kind]} {one.name}".rstrip()
            for row, one in actions
            if one.kind != "whole" and one.start - 1e-9 <= time < one.end - 1e-9
        ]
        said = "; ".join(filter(None, [*(now or [words["done"]]), more(time)]))
        told.append((round(time / end, 4), said))
    return tuple(told)
