"""Published searches for the best layout, and what the law of time prefers. No torch.

In: planner/published_choices.yml, whose layouts fitted in memory where they were measured. Out: a
run for each search. Its measures say how much longer the measured step of the layout that the law
prefers is than that of the winner, and which pairs of layouts the law orders as they were measured,
or the other way. Nothing is simulated: operations and bytes are closed forms.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import yaml

from runners.planning.published_steps import PublishedStep, law, order, published_seconds
from runners.traces.published import PLANNER, run, run_name
from runners.traces.records import Run
from runners.traces.schema import Setting

LIST = "published_choices.yml"
SETTINGS = ("model", "sequence", "devices", "batch", "num_out_of_memory")


def listed() -> dict[str, Any]:
    """The file; its head says what the fields are."""
    found: dict[str, Any] = yaml.safe_load((PLANNER / LIST).read_text(encoding="utf-8"))
    return found


def step(file: dict[str, Any], case: dict[str, Any], measured: list[float]) -> PublishedStep:
    """A measured layout, as the law of time takes it: tensor, pipeline, microbatch, seconds."""
    *axes, seconds = measured
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


def runs() -> dict[str, Run]:
    """What won in each search, and what the law prefers."""
    file = listed()
    return {
        run_name(f"choice-{case['id']}"): _choice(file, case, place)
        for place, case in enumerate(file["cases"])
    }


def _choice(file: dict[str, Any], case: dict[str, Any], place: int) -> Run:
    found = [step(file, case, one) for one in case["runs"]]
    won, preferred = min(found, key=published_seconds), min(found, key=_key)
    orders = [order(one, other, 1.0) for one, other in combinations(found, 2)]
    settings: dict[str, Setting] = {
        "place": place,
        "id": case["id"],
        "url": f"https://github.com/{file['repository']}/blob/{file['commit']}/{case['path']}",
        **{name: case[name] for name in SETTINGS},
        "won": _axes(won),
        "preferred": _axes(preferred),
    }
    return run(
        settings,
        {
            "slower_share": published_seconds(preferred) / published_seconds(won) - 1,
            "num_layouts": len(found),
            "num_pairs": sum(one is not None for one in orders),
            "num_right": orders.count("right"),
            "num_wrong": orders.count("wrong"),
        },
    )


def _axes(row: PublishedStep) -> list[int]:
    return [row.tensor, row.pipeline, row.micro]


def _key(row: PublishedStep) -> tuple[float, float, int, int]:
    """Bounds that differ by less than a hundredth count as equal; then less memory is better."""
    found = law(row)
    at_least, at_most = (float(f"{x:.3g}") for x in (found.at_least, found.at_most))
    return at_least, at_most, -row.tensor * row.pipeline, row.micro
