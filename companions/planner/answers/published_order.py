"""Published steps: of layouts of one training the fastest and the rule's, and each one's bound.

In: the rows of `published_rates.yml`, and the rule. Out: `plan_order`, a run for each cluster or
search that others ran in several layouts. Closed forms say which of them fit, the rule orders
these, and the run says how much slower its first was than the fastest. Of clusters with more than
`FEW` layouts, `few` and `many` sum up those of at most `known_to` devices, and larger ones. The run
of a kind of devices has the number of its steps, and of those that took at least the bound. No
torch.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from proofbook.companions.planner.answers import closed_form
from proofbook.companions.planner.answers.answer import GIB, layouts
from proofbook.companions.planner.answers.published import run, run_name
from proofbook.companions.planner.answers.published_rows import RATES, PublishedRow, rows
from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.schema import Setting

NEAR = 0.1  # a layout that is slower by a smaller share is nearly as fast as the fastest
FEW = 3  # layouts of a cluster, with no more of which a rule is right by chance
MOST = 0.75  # of the clusters, on which the rule is near where the order is known


def searches() -> dict[str, list[PublishedRow]]:
    """By run name, two or more published rows of one cluster and training, of which some ran."""
    clusters = defaultdict[tuple[object, ...], list[PublishedRow]](list)
    for row in rows(RATES):
        if row.device.memory_gib:
            clusters[row.group, row.sequence, row.global_batch, row.software].append(row)
    several = [of for of in clusters.values() if len(of) > 1 and any(row.seconds for row in of)]
    return {run_name(f"cluster-{of[0].group} {of[0].software}".strip()): of for of in several}


def tried(of: Sequence[PublishedRow]) -> list[PublishedRow]:
    """The rows that fit by closed forms, in the order of the rule."""
    answers = [closed_form.answer(row.question) for row in of]
    by_answer = {id(answer): row for answer, row in zip(answers, of, strict=True)}
    memory = (of[0].device.memory_gib or 0) * GIB
    return [by_answer[id(layout.answer)] for layout in layouts(answers, of[0].cluster, memory)]


def runs() -> dict[str, Run]:
    """Runs by name: clusters; `few`, `many`, parted where the rule stops being near; devices."""
    asked = {name: of for name, of in searches().items() if tried(of)}
    by_name = {name: _run(of, place) for place, (name, of) in enumerate(asked.items())}
    counted = {name: of for name, of in asked.items() if _num_layouts(of) > FEW}
    sizes = sorted({of[0].devices for of in counted.values()}, reverse=True)
    few = {
        to: [by_name[name] for name, of in counted.items() if of[0].devices <= to] for to in sizes
    }
    known = next((to for to, of in few.items() if _num_near(of) >= MOST * len(of)), 0)
    many = [by_name[name] for name, of in counted.items() if of[0].devices > known]
    fsdp = [of for of in asked.values() if "fsdp" in {row.strategy.sharding for row in of}]
    settings: dict[str, Setting] = {"known_to": known, "near": NEAR, "more_than": FEW}
    counts: dict[str, Setting] = {"num_clusters": len(by_name), "num_with_fsdp": len(fsdp)}
    of_all = {"few": _summary(few.get(known, [])), "many": _summary(many)}
    return by_name | of_all | {"all": run(settings, counts)} | _devices()


def _devices() -> dict[str, Run]:
    """By the name of a kind of devices, how many of its steps took at least their bound."""
    devices = defaultdict[str, list[bool]](list)
    for row in rows(RATES):
        if row.seconds is not None:
            bound = closed_form.answer(row.question).bounds(row.cluster).at_least
            devices[row.device.name].append(bound <= row.seconds)
    return {
        run_name(name): run({"device": name}, {"num_rows": len(of), "num_possible": sum(of)})
        for name, of in devices.items()
    }


def _num_layouts(of: Sequence[PublishedRow]) -> int:
    return len(of) + max(row.num_out_of_memory for row in of)


def _run(of: Sequence[PublishedRow], place: int) -> Run:
    """The run of a cluster; the rule's first layout is the first that did not fail there."""
    ran = sorted((row.seconds, n) for n, row in enumerate(of) if row.seconds)
    (least, won), chosen = ran[0], tried(of)
    best, first = of[won], next(row for row in chosen if row.seconds)
    within = [seconds for seconds, n in ran if of[n].strategy.tensor <= best.device.per_node]
    settings: dict[str, Setting] = {
        "place": place,
        "device": best.device.name,
        **best.model_dump(include={"model", "devices", "sequence", "global_batch"}),
        **best.source.model_dump(include={"title", "where", "url"}),
    }
    for field, row in {"won": best, "first": first}.items():
        strategy = row.strategy
        settings[field] = [strategy.data, strategy.pipeline, strategy.tensor, row.microbatch]
        settings[f"{field}_sharding"] = strategy.sharding
    measures: dict[str, Setting] = {
        "step_seconds": least,
        "within_node_seconds": within[0],
        "slower_share": (first.seconds or 0) / least - 1,
        "num_layouts": _num_layouts(of),
        "num_failed": _num_layouts(of) - len(ran),
        "num_failed_first": chosen.index(first),
    }
    return run(settings, measures)


def _shares(of: Sequence[Run]) -> list[float]:
    return [float(str(run.ranks[0].measures["slower_share"])) for run in of]


def _num_near(of: Sequence[Run]) -> int:
    return sum(share <= NEAR for share in _shares(of))


def _summary(of: Sequence[Run]) -> Run:
    measures: dict[str, Setting] = {
        "num_clusters": len(of),
        "num_near": _num_near(of),
        "median_slower_share": median(_shares(of)),
    }
    return run({}, measures)
