"""Published searches for the best layout, and what the law of time prefers. No torch.

In: planner/published_choices.yml, whose layouts fitted in memory where they were measured. Out: a
`PublishedChoice` for each search. Nothing is simulated: operations and bytes are closed forms.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import yaml

from runners.planning.published_steps import law, order, published_seconds
from runners.traces.digest import ROOT
from runners.traces.published_plans import CHOICES, PublishedChoice
from runners.traces.published_steps import PublishedStep


def listed() -> dict[str, Any]:
    """The file; its head says what the fields are."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "content" / CHOICES).read_text(encoding="utf-8"))
    return found


def step(file: dict[str, Any], case: dict[str, Any], run: list[float]) -> PublishedStep:
    """A measured layout, as the law of time takes it: tensor, pipeline, microbatch, seconds."""
    *axes, seconds = run
    about = {key: case[key] for key in ("model", "sequence", "devices", "batch")}
    about |= zip(("tensor", "pipeline", "micro"), map(int, axes), strict=True)
    return PublishedStep(
        **file["cluster"],
        **file["models"][case["model"]],
        **about,
        table=case["id"],
        rate=case["batch"] * case["sequence"] / case["devices"] / seconds,
        unit="tokens/s",
        sharding="none",  # ZeRO-1 sends as many bytes
        is_interleaved=False,
        recomputed=0.0,
        title=case["id"],
        where=file["repository"],
        url=case["path"],
    )


def choices() -> list[PublishedChoice]:
    """What won in each search, and what the law prefers."""
    file = listed()
    return [_choice(file, case) for case in file["cases"]]


def _choice(file: dict[str, Any], case: dict[str, Any]) -> PublishedChoice:
    found = [step(file, case, run) for run in case["runs"]]
    won, preferred = min(found, key=published_seconds), min(found, key=_key)
    orders = [order(one, other, 1.0) for one, other in combinations(found, 2)]
    return PublishedChoice(
        id=case["id"],
        repository=file["repository"],
        commit=file["commit"],
        path=case["path"],
        settings={key: case[key] for key in ("model", "sequence", "devices", "batch")},
        won=_axes(won),
        preferred=_axes(preferred),
        slower_share=published_seconds(preferred) / published_seconds(won) - 1,
        num_layouts=len(found),
        num_out_of_memory=case["num_out_of_memory"],
        num_pairs=sum(one is not None for one in orders),
        num_right=orders.count("right"),
        num_wrong=orders.count("wrong"),
    )


def _axes(row: PublishedStep) -> list[int]:
    return [row.tensor, row.pipeline, row.micro]


def _key(row: PublishedStep) -> tuple[float, float, int, int]:
    """Bounds that differ by less than a hundredth count as equal; then less memory is better."""
    found = law(row)
    at_least, at_most = (float(f"{x:.3g}") for x in (found.at_least, found.at_most))
    return at_least, at_most, -row.tensor * row.pipeline, row.micro


def lines(found: list[PublishedChoice]) -> list[str]:
    """A line for each search."""
    head = f"{'search':<26}{'won':<12}{'by the law':<12}{'slower by':>10}  pairs in order"
    rows = [
        f"{one.id:<26}{'×'.join(map(str, one.won)):<12}{'×'.join(map(str, one.preferred)):<12}"
        f"{one.slower_share:10.1%}  {one.num_right} right, {one.num_wrong} wrong of {one.num_pairs}"
        for one in found
    ]
    return [head, *rows]
