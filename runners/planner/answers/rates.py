"""How long a step may take: the rates that published trainings reached on the same devices. No torch.

In: an answer, a cluster, and the committed comparison `plan_steps`, whose runs have the highest rate
that each published cluster or search reached. Out: a range of seconds, and of how many it follows.

Formula: operations of the model / (devices × highest rate × share). The operations are those of our
closed form without recomputation, with attention counted once, for published rows and plans alike.
"""

from functools import cache
from statistics import quantiles
from typing import NamedTuple

from runners.planner.answers import closed_form
from runners.planner.answers.answer import Answer
from runners.planner.answers.architecture import Architecture
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.published import STEPS
from runners.planner.answers.question import Question, Strategy
from runners.traces.files import read

LEAST = 6  # clusters, with fewer of which there is no range
ALIKE = 2.0  # times as many parameters, or as few, as a model may have that counts
SAME_RATE = 0.01  # devices whose highest rates differ by a smaller share are the same


class Range(NamedTuple):
    """Shares of a device's highest rate: the quartiles of what published trainings reached."""

    low: float
    high: float
    num_clusters: int


def model_flops(question: Question) -> float:
    """Operations of a step on all devices, without what is computed again."""
    single = {"microbatch": 1, "checkpointing": "none"}
    training = question.training.model_copy(update=single)
    strategy = {"training": training, "strategy": Strategy(name="single")}
    return float(closed_form.answer(question.model_copy(update=strategy)).ranks[0].flops)


def reached(flops: float, shape: Architecture) -> Range | None:
    """The rates that models like this one reached on devices of such a highest rate.

    Models are alike by their parameters in all, which decide how many devices divide them. Those
    with experts are compared with their like alone: sending tokens to experts takes time that no
    other model needs, and few of the parameters compute.

    Args:
        flops: of a device in a second, at its highest rate in 16 bits.
        shape: of the model.
    """
    is_mixture, size = shape.num_experts > 1, shape.num_parameters
    shares = [
        share
        for rate, has_experts, parameters, share in _clusters()
        if has_experts == is_mixture
        and abs(rate / flops - 1) < SAME_RATE
        and size / ALIKE <= parameters <= size * ALIKE
    ]
    if len(shares) < LEAST:
        return None
    low, _, high = quantiles(shares, n=4, method="inclusive")
    return Range(low, high, len(shares))


@cache
def _clusters() -> list[tuple[float, bool, int, float]]:
    """Of each published cluster: rate of a device, whether experts, parameters, share reached."""
    runs = [run.ranks[0].measures for run in read(STEPS.path).runs.values()]
    return [
        (float(m["flops"]), bool(m["is_mixture"]), int(m["num_parameters"]), float(m["share"]))
        for m in runs
        if "share" in m
    ]


def range_of(answer: Answer, cluster: Cluster) -> tuple[float, float, int] | None:
    """The shortest and longest seconds that a step usually takes, and of how many clusters.

    None where too few are published, where a step computes in 32 bits, and where all of the range
    is less than a step takes at least.
    """
    question = answer.question
    shape = question.model.architecture
    found = None
    if shape is not None and question.training.precision != "fp32":
        found = reached(cluster.flops, shape)
    if found is None:
        return None
    whole = model_flops(question) / (cluster.num_devices * cluster.flops)
    longest, least = whole / found.low, answer.bounds(cluster).at_least
    if longest < least:
        return None
    return max(whole / found.high, least), longest, found.num_clusters
