"""One recommendation for a model on a cluster: searched, ordered by the law of time, and justified.

In: a model, a training, a cluster, the memory of a device, and how long to search. Out: a `Choice`
(what fits, best first, the runner-up, and with which other devices another layout would be best),
and the lines that say so. No torch.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal, NamedTuple

from runners.planner.answers.answer import GIB, Answer, Layout, layouts, needs
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.question import (
    Model,
    PlanError,
    Question,
    Strategy,
    Training,
    strategy_of,
)
from runners.traces.machine import num_cores

Simulate = Callable[[Sequence[Question]], list[Answer]]
# Bytes of each parameter beside what is gathered: the parameter, its gradient, and the state.
_STATE = {"adam": 12, "adam8bit": 6, "momentum": 8, "sgd": 4}


# --- the search


def strategies(cluster: Cluster, num_experts: int = 1, tensor: str = "tp-sp") -> list[Strategy]:
    """Those that a cluster is searched for: each axis alone, and products of two and three.

    Tensor parallelism stays within a node: between nodes its collectives, which the next operation
    waits for, are the longest part of any step. HSDP has a replica in each node; a sequence,
    and the experts of a layer, stay in one.

    Args:
        cluster: nodes and devices.
        num_experts: of the model.
        tensor: the word of tensor parallelism: `tp` where a model of one's own brings its plan.
    """
    devices, node, nodes = cluster.num_devices, cluster.per_node, cluster.nodes
    if devices == 1:
        return [strategy_of("single", 1)]
    names = ["ddp-view", "zero1", "fsdp", "fsdp-keep"]
    if nodes > 1 < node:
        names += [f"hsdp.{nodes}.{node}", f"fsdp.{devices}.{node}"]
    inner = [n for n in (2, 4, 8) if n <= node and node % n == 0]
    for n in inner:
        rest = devices // n
        names += [f"hsdp.{nodes}.{node // n}+{tensor}.{n}"] if nodes > 1 and node > n else []
        names += (
            [tensor] if rest == 1 else [f"fsdp.{rest}+{tensor}.{n}", f"zero1.{rest}+{tensor}.{n}"]
        )
    for stages, n in product((2, 4, 8, 16), (1, *inner)):
        rest = devices // (stages * n)
        if stages == devices:
            names += ["1f1b", "interleaved"]
        elif rest * stages * n == devices:
            axes = {f"1f1b.{stages}": stages, f"zero1.{rest}": rest, f"{tensor}.{n}": n}
            names.append("+".join(axis for axis, size in axes.items() if size > 1))
    names += [f"fsdp.{devices // n}+cp.{n}" for n in inner if devices > n]
    names += [f"fsdp.{devices}+ep.{n}" for n in inner if num_experts % n == 0]
    return [strategy_of(name, devices) for name in dict.fromkeys(names)]


def microbatch_of(strategy: Strategy, samples: int) -> int:
    """The microbatch with which a strategy is tried first.

    Each rank gets as many samples, except in a pipeline, which idles less with more microbatches.
    """
    return samples if strategy.pipeline > 1 else samples * strategy.tensor


def _state_bytes(question: Question) -> float:
    """Of parameters, gradients and optimizer, by closed form: what a layout needs at the least."""
    strategy, shape = question.strategy, question.model.architecture
    if shape is None:
        return 0.0
    parameters = shape.num_parameters / (strategy.tensor * strategy.pipeline)
    whole = 2 if strategy.sharding in ("none", "zero1") else 0
    state = _STATE[question.training.optimizer]
    if question.training.precision == "bf16":  # no fp32 copy, and the rest half as wide
        state = (state - 4) // 2
    return parameters * (whole + (state + 2) / strategy.shards)


def _is_possible(question: Question, memory_bytes: float) -> bool:
    """Whether the model and the mesh allow it, and its state alone does not fill a device."""
    try:
        question.check()
    except PlanError:
        return False
    return _state_bytes(question) < memory_bytes


def search(
    model: Model,
    training: Training,
    cluster: Cluster,
    memory_bytes: float,
    simulate: Simulate,
    seconds: float,
    tried: Sequence[Strategy] | None = None,
) -> tuple[list[Answer], bool]:
    """Simulate layouts until all are known, or one more round would probably last too long.

    Returns:
        The answers, and whether nothing was left out.
    """
    shape, known = model.architecture, dict[str, Answer]()
    if tried is None:
        tried = strategies(cluster, shape.num_experts if shape else 1, "tp-sp" if shape else "tp")
    now = time.monotonic()
    end, longest = now + seconds, 0.0

    def best() -> list[Layout]:
        return layouts([*known.values()], cluster, memory_bytes)

    for wave in _waves(model, training, tried, best):
        asked = {one.model_dump_json(): one for one in wave if _is_possible(one, memory_bytes)}
        new = [key for key in asked if key not in known]
        for start in range(0, len(new), num_cores()):
            if now + longest > end:
                return list(known.values()), False
            keys, began = new[start : start + num_cores()], now
            known |= zip(keys, simulate([asked[key] for key in keys]), strict=True)
            now = time.monotonic()
            longest = max(longest, now - began)
    return list(known.values()), True


def _waves(
    model: Model, training: Training, tried: Sequence[Strategy], best: Callable[[], list[Layout]]
) -> Iterator[list[Question]]:
    """What a search asks in turn.

    First comes every strategy, with as many tokens on each rank; then those that do not fit, with
    smaller microbatches and with checkpointing; then the best ones, with larger microbatches.

    Args:
        model: of each question.
        training: of each, but for what a wave changes.
        tried: strategies.
        best: gives the layouts that fit, of those that were asked before.
    """

    def question(strategy: Strategy, times: int = 1, **changes: object) -> Question:
        microbatch = microbatch_of(strategy, training.microbatch) * times
        settings = training.model_copy(update={"microbatch": microbatch, **changes})
        return Question(model=model, training=settings, strategy=strategy)

    yield [question(one) for one in tried]
    fitting = {one.strategy for one in best()}
    others = [one for one in tried if one.name not in fitting]
    if training.checkpointing == "none":
        yield [question(one, microbatch=training.microbatch) for one in others]
        yield [question(one, checkpointing="all") for one in others]
    for times in (2, 4, 8):
        leading = [one.answer.question for one in best()[:4]]
        yield [
            question(one.strategy, times, checkpointing=one.training.checkpointing)
            for one in leading
        ]


# --- what is recommended, and what is said of it


class Turn(NamedTuple):
    """Other links, or less memory, with which another layout is best.

    Attributes:
        best: the layout there; None where nothing that was simulated fits.
        between: bytes that a node sends in a second, where the links differ.
        memory_bytes: of a device, below which the choice turns.
    """

    best: Layout | None
    between: float = 0.0
    memory_bytes: float = 0.0


class Choice(NamedTuple):
    """What is recommended, and why.

    Attributes:
        fitting: every layout that fits, best first.
        runner_up: the best layout of another strategy.
        turns: what would change the choice, of the links and devices that are tried.
    """

    fitting: list[Layout]
    runner_up: Layout | None
    turns: list[Turn]

    @property
    def best(self) -> Layout:
        """The layout that is recommended."""
        return self.fitting[0]


def choice(answers: Sequence[Answer], cluster: Cluster, memory_bytes: float) -> Choice:
    """The recommendation, its runner-up, and what would turn it.

    Raises:
        PlanError: nothing fits.
    """
    found = layouts(answers, cluster, memory_bytes)
    if not found:
        none = "no layout fits: parameters, gradients and optimizer alone need more memory"
        why = next((one.reason for one in answers if one.reason), none)
        if least := min((needs(one) for one in answers if one.ranks), default=0):
            given = f"{memory_bytes / GIB:.4g} GiB"
            why = f"no layout fits {given}; the least needs {least / GIB:.1f}"
        raise PlanError(why)
    best = found[0]
    runner_up = next((one for one in found if one.strategy != best.strategy), None)
    return Choice(found, runner_up, list(_turns(answers, found, cluster, memory_bytes)))


def recommendation_lines(
    answers: Sequence[Answer], cluster: Cluster, memory_bytes: float, *, is_whole: bool
) -> list[str]:
    """The recommendation, its reason, the runner-up, and what would turn the choice.

    Raises:
        PlanError: nothing fits.
    """
    try:
        made = choice(answers, cluster, memory_bytes)
    except PlanError as error:
        if is_whole:
            raise
        cut = f"{len(answers)} layouts simulated, the time of the search was over; see --seconds"
        raise PlanError(f"{error} ({cut})") from None
    lines = [f"recommended: {made.best.name}", f"  {_reason(made.best, memory_bytes)}"]
    if made.runner_up is not None:
        lines.append(f"runner-up:   {made.runner_up.name}")
        lines.append(f"  {_compared(made.runner_up, made.best)}")
    for one in made.turns:
        other = one.best.name if one.best else "nothing that was simulated fits"
        links, memory = f"with {one.between / 1e9:.3g} GB/s between nodes", one.memory_bytes / GIB
        lines.append(f"it turns:    {links if one.between else f'below {memory:.1f} GiB'}: {other}")
    lines.append(
        f"{len(answers)} layouts simulated, {len(made.fitting)} fit; "
        + ("all that the search knows" if is_whole else "the time of the search was over")
    )
    return lines


def _reason(one: Layout, memory_bytes: float) -> str:
    law = one.bounds
    return (
        f"needs {one.needed_bytes / GIB:.1f} of {memory_bytes / GIB:.4g} GiB; "
        f"a step takes at least {law.at_least:.3g} s, by {law.decides}, "
        f"and without any overlap {law.at_most:.3g} s (computing {law.computing:.3g}, "
        f"within a node {law.within:.3g}, between nodes {law.between:.3g})"
        + ("; little memory is left" if one.is_tight(memory_bytes) else "")
    )


def longer_by(other: Layout, best: Layout) -> Literal["at least", "at most", "neither"]:
    """The bound by which a layout comes after the best one."""
    _, at_least, at_most, _ = (mine > its for mine, its in zip(other.key, best.key, strict=True))
    return "at least" if at_least else "at most" if at_most else "neither"


def _compared(other: Layout, best: Layout) -> str:
    mine, its = other.bounds, best.bounds
    match longer_by(other, best):
        case "at least":
            why = f"at least {mine.at_least:.3g} s instead of {its.at_least:.3g}, by {mine.decides}"
        case "at most":
            why = f"as long at least, but {mine.at_most:.3g} s instead of {its.at_most:.3g}"
            why += " unless hidden"
        case _:
            why = "as long by both bounds"
    return f"{why}; needs {other.needed_bytes / GIB:.1f} GiB"


def _turns(
    answers: Sequence[Answer], found: Sequence[Layout], cluster: Cluster, memory_bytes: float
) -> Iterator[Turn]:
    """Links, of those tried here, and less memory, with which another layout is best."""
    best = found[0]
    for factors in ((1 / 2, 1 / 4, 1 / 8, 1 / 16), (2, 4, 8)) if cluster.nodes > 1 else ():
        for between in (cluster.between * n for n in factors):
            there = layouts(answers, replace(cluster, between=between), memory_bytes)[0]
            if there.kind != best.kind:
                yield Turn(there, between)
                break
    least = best
    while below := next((one for one in found if one.needed_bytes < least.needed_bytes), None):
        if below.kind != best.kind:
            break
        least = below
    yield Turn(below, memory_bytes=least.needed_bytes)
