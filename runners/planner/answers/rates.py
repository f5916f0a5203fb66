"""How long a step may take: the rates that published trainings reached on like devices. No torch.

In: the rows of `published_rates.yml`. Out: `plan_steps`, a run for each cluster or search with the
highest share of its devices' rate that a row reached, and for each device whether steps took at
least the bound; and of a planned layout, the seconds between the quartiles of those shares.

Formula: operations / (devices × highest rate × share). Operations are those of the model by our
closed form, causal attention once and nothing recomputed, for published rows and plans alike.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from statistics import quantiles

from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.schema import Setting
from proofbook.runners.planner.answers import closed_form
from proofbook.runners.planner.answers.answer import PlanAnswer
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.published import STEPS, run, run_name
from proofbook.runners.planner.answers.published_rows import RATES, PublishedRow, rows
from proofbook.runners.traces.files import read

LEAST = 6  # clusters, with fewer of which there is no range
ALIKE = 2.0  # times as many parameters, or as few, as a model may have that counts
SAME = 0.01  # devices whose highest rates differ by a smaller share are the same


def range_of(answer: PlanAnswer, cluster: Cluster) -> tuple[float, float, int] | None:
    """A step's seconds at upper and lower quartiles of like clusters' rates, their number; or None.

    Models are alike by their parameters in all, which decide how many devices divide them. Those
    with experts are compared with their like alone: sending tokens to experts takes time that no
    other model needs, and few of the parameters compute.

    Returns:
        None where too few are published, for steps in 32 bits, and where the range is below the
        bound.
    """
    question, shape = answer.question, answer.question.model.architecture
    if shape is None or question.training.precision == "fp32":
        return None
    size, has_experts = shape.num_parameters, shape.num_experts > 1
    shares = [
        share
        for share, flops, parameters, is_mixture in _clusters()
        if abs(flops / cluster.flops - 1) < SAME
        and size / ALIKE <= parameters <= size * ALIKE
        and is_mixture == has_experts
    ]
    if len(shares) < LEAST:
        return None
    low, _, high = quantiles(shares, n=4, method="inclusive")
    whole = closed_form.model_flops(question) / (cluster.num_devices * cluster.flops)
    least = answer.bounds(cluster).at_least
    return (max(whole / high, least), whole / low, len(shares)) if whole / low > least else None


@cache
def _clusters() -> list[list[float]]:
    """Of each published cluster: share, rate of a device, parameters, and whether experts."""
    measures = [run.ranks[0].measures for run in read(STEPS.path).runs.values()]
    names = ("share", "flops", "num_parameters", "is_mixture")
    return [[float(str(m[name])) for name in names] for m in measures if "share" in m]


def runs() -> dict[str, Run]:
    """Runs by name: a cluster's best share of the rate; for each device, steps above bounds."""
    rows_of = defaultdict[str, list[PublishedRow]]
    clusters, devices = rows_of(list), rows_of(list)
    for row in rows(RATES):
        if row.seconds is not None:
            clusters[row.group].append(row)
            devices[row.device.name].append(row)
    by_name = {run_name(f"cluster-{group}"): _cluster(of) for group, of in clusters.items()}
    return by_name | {run_name(name): _device(of) for name, of in devices.items()}


def share(row: PublishedRow) -> float:
    """Of the devices' highest rate, that the operations of the model took."""
    seconds = (row.seconds or 0) * row.devices
    return closed_form.model_flops(row.question) / (seconds * row.device.flops)


def _cluster(of: Sequence[PublishedRow]) -> Run:
    best = max(of, key=share)
    settings: dict[str, Setting] = {
        **best.model_dump(include={"model", "devices"}),
        **best.source.model_dump(include={"title", "where", "url"}),
        "device": best.device.name,
        "num_rows": len(of),
    }
    shape = best.architecture
    measures: dict[str, Setting] = {
        "share": share(best),
        "flops": best.device.flops,
        "num_parameters": shape.num_parameters,
        "is_mixture": int(shape.num_experts > 1),
    }
    return run(settings, measures)


def _device(of: Sequence[PublishedRow]) -> Run:
    least = [closed_form.answer(row.question).bounds(row.cluster).at_least for row in of]
    possible = [a <= (row.seconds or 0) for a, row in zip(least, of, strict=True)]
    measures: dict[str, Setting] = {"num_rows": len(of), "num_possible": sum(possible)}
    return run({"device": of[0].device.name}, measures)
