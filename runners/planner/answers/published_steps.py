"""Published training steps: the rate that each cluster reached, and whether bounds hold. No torch.

In: the rows of `published_rates.yml`. Out: runs. That of a cluster or a search has the highest share
of the devices' rate that any of its rows reached, from which `rates` takes its ranges; that of
a device says how many of its steps took at least the bound.
"""

from collections import defaultdict

from runners.planner.answers import closed_form
from runners.planner.answers.published import run, run_name
from runners.planner.answers.published_rows import RATES, Row, rows
from runners.planner.answers.rates import model_flops
from runners.traces.records import Run


def runs() -> dict[str, Run]:
    """Every cluster and every device as a run."""
    clusters, devices = defaultdict[str, list[Row]](list), defaultdict[str, list[Row]](list)
    for row in rows(RATES):
        if row.seconds is not None:
            clusters[row.group].append(row)
            devices[row.device.name].append(row)
    found = {run_name(f"cluster-{one}"): _cluster(of) for one, of in clusters.items()}
    return found | {run_name(name): _possible(of) for name, of in devices.items()}


def share(row: Row) -> float:
    """Of the devices' highest rate, that the operations of the model took."""
    assert row.seconds is not None
    return model_flops(row.question) / (row.seconds * row.devices * row.device.flops)


def _cluster(of: list[Row]) -> Run:
    best = max(of, key=share)
    about = {"model": best.model, "devices": best.devices, "device": best.device.name}
    source = best.source.model_dump(include={"title", "where", "url"})
    return run(
        {**about, **source, "num_rows": len(of)},
        {
            "share": share(best),
            "flops": best.device.flops,
            "num_parameters": best.architecture.num_parameters,
            "is_mixture": best.architecture.num_experts > 1,
        },
    )


def _possible(of: list[Row]) -> Run:
    least = [closed_form.answer(row.question).bounds(row.cluster).at_least for row in of]
    possible = [a <= (row.seconds or 0) for a, row in zip(least, of, strict=True)]
    return run({"device": of[0].device.name}, {"num_rows": len(of), "num_possible": sum(possible)})
