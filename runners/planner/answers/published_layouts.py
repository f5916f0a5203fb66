"""Published layouts of many clusters: what the estimate is fitted to, and how well it chooses.

In: planner/published_layouts.yml and .csv. Out: runs. That of a cluster says how much slower the
layout that the estimate prefers ran than the fastest one, where the estimate was fitted to all
other clusters; that of a model how far memory by closed forms is from what was published; and
`fitted` has the parameters. Nothing is simulated. No torch.
"""

import csv
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, groupby
from math import exp, log, log1p
from statistics import median
from typing import Any, NamedTuple

import yaml

from runners.planner.answers import closed_form
from runners.planner.answers.answer import GIB
from runners.planner.answers.architecture import Architecture
from runners.planner.answers.estimate import (
    ALIKE,
    SHARES,
    START,
    Parameters,
    Work,
    estimated,
    work_of,
)
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.published import PLANNER, run, run_name
from runners.planner.answers.question import (
    Implementation,
    Model,
    PlanError,
    Question,
    Strategy,
    Training,
)
from runners.traces.records import Run
from runners.traces.schema import Setting

LIST = "published_layouts"
ROOM = 0.87  # of a device: what needs more ran slowly, or not at all
_NEAR = 1.1  # next to the fastest layout of a cluster, what is nearly as fast
_SCALE = 0.05  # an error of so much counts fully; of errors far beyond it only the logarithm does
_STEPS = (0.1, 0.03, 0.01)  # of the fit, as shares of a parameter


class Row(NamedTuple):
    """A published layout, with all that the estimate needs of it.

    Attributes:
        cluster: the name of its model and its devices.
        layout: replicas, stages, tensor-parallel ranks, whether ZeRO-1, microbatch.
        seconds: of a step; 0 where it failed.
        gib: of the first stage, as published.
        held: GiB of each simulated stage, by closed forms.
    """

    cluster: str
    model: str
    devices: int
    layout: tuple[int, ...]
    seconds: float
    gib: float
    held: tuple[float, ...]
    work: Work

    @property
    def fits(self) -> bool:
        """Whether the closed forms leave room on each device."""
        return max(self.held) <= ROOM * float(_file()["cluster"]["memory"])


@cache
def _file() -> dict[str, Any]:
    file: dict[str, Any] = yaml.safe_load((PLANNER / f"{LIST}.yml").read_text(encoding="utf-8"))
    return file


def rows() -> list[Row]:
    """The rows that count, in their order.

    Raises:
        PlanError: a row is not what it should be.
    """
    path, found = PLANNER / f"{LIST}.csv", []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for said in reader:
            try:
                found += [_row(said)] if _counts(said) else []
            except (LookupError, TypeError, ValueError) as error:
                needs = (
                    f"a row needs a number in each column, and what {LIST}.yml says of its model"
                )
                raise PlanError(f"{path}:{reader.line_num}: {error}; {needs}") from error
    return found


def _counts(said: dict[str, str]) -> bool:
    samples = int(said["dp"]) * int(said["microbatch"]) * int(said["accumulation"])
    if samples != int(said["global_batch"]):
        return False
    speed, share = (float(said[of] or 0) for of in ("tokens_per_second_per_gpu", "mfu_percent"))
    is_grouped = abs(speed - share * _file()["ratio_of_grouped"]) < share
    return not (is_grouped and said["model"] == "80B")


def _row(said: dict[str, str]) -> Row:
    file, nodes = _file(), int(said["nodes"])
    about = file["cluster"]
    rates = about["flops"], about["within"], about["between"]
    cluster = Cluster(nodes, about["per_node"], *rates)
    question = _question(said, file)
    answer, speed = closed_form.answer(question, file["kept"]), said["tokens_per_second_per_gpu"]
    tokens = question.training.global_batch * question.training.sequence / cluster.num_devices
    strategy = question.strategy
    return Row(
        cluster=f"{said['model']} on {cluster.num_devices}",
        model=said["model"],
        devices=cluster.num_devices,
        layout=(
            strategy.data, strategy.pipeline, strategy.tensor,
            int(strategy.sharding == "zero1"), question.training.microbatch,
        ),
        seconds=tokens / float(speed) if speed else 0.0,
        gib=float(said["gpu_memory_gb"] or 0),
        held=tuple(one.reserved_bytes / GIB for one in answer.ranks),
        work=work_of(question, answer.ranks, cluster),
    )  # fmt: skip


def _question(said: dict[str, str], file: dict[str, Any]) -> Question:
    shape = Architecture.model_validate(file["models"][said["model"]])
    data, stages, tensor = (int(said[axis]) for axis in ("dp", "pp", "tp"))
    strategy = Strategy(
        name=LIST,
        data=data,
        tensor=tensor,
        pipeline=stages,
        sharding="zero1" if int(said["zero"]) and data > 1 else "none",
        schedule="1f1b" if stages > 1 else "none",
        has_sequence_parallel=tensor > 1,
        has_bucket_views=True,
        layers_of_stages=_balanced(shape, stages),
    )
    training = Training(
        sequence=file["sequence"],
        microbatch=int(said["microbatch"]),
        global_batch=int(said["global_batch"]),
    )
    implementation = Implementation(has_wide_gradients=True, has_loss_in_place=True)
    model = Model(name=said["model"], architecture=shape)
    return Question(
        model=model, training=training, implementation=implementation, strategy=strategy
    )


def _balanced(shape: Architecture, stages: int) -> list[int]:
    """Layers of each stage, where the logits cost as much as their weights, as nanotron has it."""
    layer = shape.layer_parameters - 2 * shape.norm_parameters
    costs = [0, *[layer] * shape.num_layers, 0, shape.embedding_parameters]
    ends = [sum(costs) * (stage + 1) / stages for stage in range(stages)]
    found, stage = [0] * stages, 0
    for block, cost in enumerate(accumulate(costs)):
        found[stage] += 0 < block <= shape.num_layers
        stage += cost > ends[stage] and stage < stages - 1
    return found


# --- the fit


def fit(known: Sequence[Row], start: Parameters = START) -> Parameters:
    """The parameters with which the estimate is nearest to what was measured.

    Each parameter in turn is raised and lowered as long as that helps, by smaller and smaller
    shares. Clusters count alike; of rows that are far off, as on nodes that were slow for reasons
    of their own, only the logarithm counts.
    """
    ran = [row for row in known if row.seconds]
    weights = {name: 1 / len(list(of)) for name, of in groupby(ran, lambda row: row.cluster)}

    def loss(by: Parameters) -> float:
        return sum(weights[row.cluster] * log1p((_error(row, by) / _SCALE) ** 2) for row in ran)

    best, least = start, loss(start)
    for step in _STEPS:
        is_better = True
        while is_better:
            is_better = False
            for name in Parameters._fields:
                for factor in (exp(step), exp(-step)):
                    value = getattr(best, name) * factor
                    tried = best._replace(**{name: min(value, 1.0) if name in SHARES else value})
                    if (found := loss(tried)) < least * (1 - 1e-6):
                        best, least, is_better = tried, found, True
    return Parameters(*(float(f"{one:.3g}") for one in best))


def _error(row: Row, by: Parameters) -> float:
    """Logarithm of the estimate next to what was measured."""
    return log(estimated(row.work, by).seconds / row.seconds)


def preferred(candidates: Sequence[Row], by: Parameters) -> Row:
    """What the estimate says is the fastest, unless one of fewer stages is nearly so."""
    seconds = [estimated(row.work, by).seconds for row in candidates]
    near = [
        pair for pair in zip(seconds, candidates, strict=True) if pair[0] <= ALIKE * min(seconds)
    ]
    return min(near, key=lambda pair: (len(pair[1].work.stages), pair[0]))[1]


def runs() -> dict[str, Run]:
    """Every cluster, every model, and the fit as a run."""
    known = rows()
    whole, found, errors = fit(known), dict[str, Run](), list[float]()
    for place, name in enumerate(dict.fromkeys(row.cluster for row in known)):
        own = [row for row in known if row.cluster == name]
        candidates = [row for row in own if row.fits]
        ran = sorted((row for row in own if row.seconds), key=lambda row: row.seconds)
        if not ran or not candidates:
            continue  # nothing ran there, or nothing is recommended
        by = fit([row for row in known if row.cluster != name], whole)
        chosen, best = preferred(candidates, by), ran[0]
        near = [row for row in ran if row.seconds <= _NEAR * best.seconds]
        errors += [abs(_error(row, by)) for row in near]
        found[run_name(f"cluster-{name}")] = run(
            {
                "place": place, "model": best.model, "devices": best.devices, "id": name,
                "won": [*best.layout], "preferred": [*chosen.layout],
            },
            {
                "seconds": best.seconds,
                "seconds_within_node": min(
                    (row.seconds for row in ran if row.layout[2] <= _file()["cluster"]["per_node"]),
                    default=0.0,
                ),
                "estimated_seconds": estimated(best.work, by).seconds,
                "slower_share": chosen.seconds / best.seconds - 1,
                "num_layouts": len(own),
                "num_failed": len(own) - len(ran),
            },
        )  # fmt: skip
    shares = [float(str(one.ranks[0].measures["slower_share"])) for one in found.values()]
    found["all"] = run(
        {"near": _NEAR - 1},
        {
            "num_rows": len(known),
            "num_clusters": len(found),
            "num_near": sum(0 <= share <= _NEAR - 1 for share in shares),
            "median_slower_share": median(shares),
            "num_chose_failed": sum(share < 0 for share in shares),
        },
    )
    found |= {run_name(f"memory-{model}"): one for model, one in _memory(known).items()}
    fitted = {"num_parameters": len(whole), "scale": _SCALE}
    return found | {"fitted": run({**fitted}, {**whole._asdict(), "error": median(errors)})}


def _memory(known: Sequence[Row]) -> dict[str, Run]:
    """How far the closed forms are from published memory, and what they would have said."""
    found, memory = {}, _file()["cluster"]["memory"]
    for model in _file()["models"]:
        own = [row for row in known if row.model == model]
        ran, failed = ([row for row in own if bool(row.seconds) == has] for has in (True, False))
        measures: dict[str, Setting] = {
            "median_error_share": median(abs(row.held[0] / row.gib - 1) for row in ran),
            "num_ran": len(ran),
            "num_ran_over": sum(max(row.held) > memory for row in ran),
            "num_failed": len(failed),
            "num_failed_within": sum(row.fits for row in failed),
        }
        found[model] = run({"memory_of": model}, measures)
    return found
