"""One recommendation for a model on a cluster: searched, ordered by an estimate, and justified.

In: a model, a training, a cluster, and the memory of a device. Out: a `Choice` (what fits, best
first, the runner-up, and with which other devices another layout would be best), and the lines that
say so. The same question has the same answer, on any machine and at any time. No torch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from runners.planner.answers import closed_form
from runners.planner.answers.answer import (
    GIB,
    Answer,
    Layout,
    layout,
    layouts,
    needs,
    ranked,
    sizes,
)
from runners.planner.answers.estimate import fitted
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.question import PlanError, Question, Strategy, strategy_of

Simulate = Callable[[Sequence[Question]], list[Answer]]
MOST = 24  # layouts that a search simulates
TOGETHER = 2  # of them, whatever the machine, so that the same ones are
LIKELY = 1.08  # times the memory: what needs less by closed forms may well fit
SLACK = 1.3  # closed forms may be off by so much where the allocator keeps fragments


# --- the search


def strategies(cluster: Cluster, num_experts: int = 1, tensor: str = "tp-sp") -> list[Strategy]:
    """Those that a cluster is searched for: each axis alone, and products of two and three.

    Tensor parallelism stays within a node: in all but one of the published searches over several
    nodes, the fastest layout did. HSDP has a replica in each node; a sequence,
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
    """The microbatch with which a strategy is compared with others.

    Each rank gets as many samples, except in a pipeline, which idles less with more microbatches.
    """
    return samples if strategy.pipeline > 1 else samples * strategy.tensor


class Found(NamedTuple):
    """What a search found.

    Attributes:
        answers: every layout that was simulated, in the order in which it was.
        num_left: others whose memory by closed forms does not rule them out.
        over: others that need far more memory than there is, by closed forms.
    """

    answers: list[Answer]
    num_left: int
    over: list[Layout]


def search(
    question: Question,
    cluster: Cluster,
    memory_bytes: float,
    simulate: Simulate,
    tried: Sequence[Strategy] | None = None,
) -> Found:
    """Simulate layouts, in an order that nothing but the question decides.

    Closed forms give each possible layout its memory and its time. What fits by them comes first,
    the fastest first, and then what nearly fits, the smallest first. Two at a time are simulated,
    until the best of two strategies are known to fit.

    Args:
        question: the training, with the smallest microbatch: larger ones, and checkpointing, are
            tried too. Layouts of a model of one's own are in the order of `strategies`.
        cluster: nodes and devices.
        memory_bytes: of a device.
        simulate: gives the answers of some questions.
        tried: strategies; None for all.

    Raises:
        PlanError: no layout is possible.
    """
    shape = question.model.architecture
    if tried is None:
        tried = strategies(cluster, shape.num_experts if shape else 1, "tp-sp" if shape else "tp")
    reasons: list[str] = []
    asked = [one for one in _questions(question, tried) if _is_possible(one, reasons)]
    if not asked:
        raise PlanError(reasons[0])
    left, over = _ordered(asked, cluster, memory_bytes) if shape else (asked, [])
    found: list[Answer] = []
    enough = 0 if shape else len({one.strategy.name for one in asked})  # each is simulated once
    while left and len(found) < MOST:
        fitting = {one.strategy for one in layouts(found, cluster, memory_bytes)}
        if len(fitting) > 1 and len(found) >= enough:
            break
        left = [one for one in left if one.strategy.name not in fitting] if shape else left
        now, left = left[:TOGETHER], left[TOGETHER:]
        found += simulate(now)
    return Found(found, len(left), over)


def _questions(question: Question, tried: Sequence[Strategy]) -> Iterator[Question]:
    """Each strategy with several microbatches, each with and without checkpointing."""
    training = question.training
    again = ("none", "all") if training.checkpointing == "none" else (training.checkpointing,)
    for checkpointing, times, one in product(again, (1, 2, 4, 8), tried):
        samples = {training.microbatch * times, microbatch_of(one, training.microbatch) * times}
        for microbatch in sorted(samples):
            changed = {"microbatch": microbatch, "checkpointing": checkpointing}
            settings = training.model_copy(update=changed)
            yield question.model_copy(update={"training": settings, "strategy": one})


def _is_possible(question: Question, reasons: list[str]) -> bool:
    try:
        question.check()
    except PlanError as error:
        reasons.append(str(error))
        return False
    return True


def _ordered(
    asked: Sequence[Question], cluster: Cluster, memory_bytes: float
) -> tuple[list[Question], list[Layout]]:
    """What may fit by closed forms: what does, by time, then others, by memory; and what cannot."""
    forms = {one.model_dump_json(): one for one in asked}
    found = [layout(closed_form.answer(one), cluster, memory_bytes) for one in forms.values()]
    found.sort(key=lambda one: one.needed_bytes)
    likely = ranked([one for one in found if one.needed_bytes <= LIKELY * memory_bytes])
    unsure = [
        one for one in found if LIKELY * memory_bytes < one.needed_bytes <= SLACK * memory_bytes
    ]
    questions = [one.answer.question for one in (*likely, *unsure)]
    return questions, found[len(questions) :]


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
        least = min((needs(one) for one in answers if one.ranks), default=0)
        given = f"{memory_bytes / GIB:.4g} GiB"
        raise PlanError(
            f"no layout fits {given}; the least needs {least / GIB:.1f}"
            if least
            else next((one.reason for one in answers if one.reason), f"no layout fits {given}")
        )
    best = found[0]
    runner_up = next((one for one in found if one.strategy != best.strategy), None)
    return Choice(found, runner_up, list(_turns(answers, found, cluster, memory_bytes)))


def recommendation_lines(found: Found, cluster: Cluster, memory_bytes: float) -> list[str]:
    """The recommendation, its reason, the runner-up, what would turn the choice, what was left out.

    Raises:
        PlanError: nothing fits; says whether all was tried.
    """
    tried = f"{len(found.answers)} layouts simulated"
    left = f"{found.num_left} others not simulated"
    over = f"{len(found.over)} need far more memory by closed forms" if found.over else ""
    try:
        made = choice(found.answers, cluster, memory_bytes)
    except PlanError as error:
        if found.num_left:
            raise PlanError(f"no answer yet: {error}, of {tried}; {left}") from None
        if not found.answers and found.over:
            least = found.over[0]
            size, its = least.needed_bytes / GIB, f"{least.name}, by closed forms"
            error = PlanError(
                f"no layout fits {memory_bytes / GIB:.4g} GiB; {its}, needs {size:.1f}"
            )
        raise PlanError("; ".join(filter(None, [str(error), tried, over]))) from None
    lines = [f"recommended: {made.best.name}", *_reasons(made.best, memory_bytes)]
    if made.runner_up is not None:
        lines.append(f"runner-up:   {made.runner_up.name}")
        lines.append(f"  {_compared(made.runner_up, made.best)}")
    for one in made.turns:
        if one.best is None:
            continue
        links, memory = f"with {one.between / 1e9:.4g} GB/s between nodes", one.memory_bytes / GIB
        where = links if one.between else f"below {memory:.1f} GiB"
        lines.append(f"it turns:    {where}: {one.best.name}")
    slower = f"{left}: slower by the estimate, or larger by closed forms" if found.num_left else ""
    lines.append(f"tried:       {'; '.join(filter(None, [tried, slower, over]))}")
    return lines


def _reasons(one: Layout, memory_bytes: float) -> list[str]:
    error, bounds = fitted().error, one.bounds
    parts = {"computing": one.estimate.computing, "idle stages": one.estimate.idle}
    parts |= {"sums of gradients": one.estimate.sums, "the update and the rest": one.estimate.rest}
    said = ", ".join(f"{what} {its:.3g}" for what, its in parts.items() if its)
    slow, fast = one.tokens / (1 + error), one.tokens * (1 + error)
    found = [
        f"  probably {one.estimate.seconds:.3g} s a step ({said}), at least "
        f"{bounds.at_least:.3g} s at the highest rates, by {bounds.decides}",
        f"  {one.tokens:,.3g} tokens a second on all devices, "
        f"{slow:,.3g} to {fast:,.3g} if the estimate errs as on published layouts",
        f"  needs {one.needed_bytes / GIB:.1f} of {memory_bytes / GIB:.4g} GiB: {sizes(one)}",
    ]
    if one.is_tight(memory_bytes):
        found.append("  it nearly fills the device: measure its first steps before you rely on it")
    return found


def _compared(other: Layout, best: Layout) -> str:
    said = f"probably {other.estimate.seconds:.3g} s; needs {other.needed_bytes / GIB:.1f} GiB"
    if best.is_as_fast_as(other):
        said += "; the estimate cannot tell them apart: measure both (`plan program` writes them)"
    return said


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
    while below := layouts(answers, cluster, least.needed_bytes - 1):
        if below[0].kind != best.kind:
            break
        least = below[0]
    yield Turn(below[0] if below else None, memory_bytes=least.needed_bytes)
