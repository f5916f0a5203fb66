"""What to try first for a model on a cluster, and what to measure beside it.

In: a model, a training, a cluster, and the memory of a device. Out: the layouts that were simulated
in the order of the rule (`order`), and the lines that say which to try first, what fills its memory
and how long a step takes at least. The same question has the same answer, on any machine and at any
time. No torch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from operator import attrgetter
from typing import NamedTuple

from proofbook.runners.planner.answers import closed_form
from proofbook.runners.planner.answers.answer import (
    GIB,
    Layout,
    PlanAnswer,
    layout_of,
    layouts,
    memory_words,
    needs,
)
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.order import KNOWN_TO, RECOMPUTATION
from proofbook.runners.planner.answers.published import ORDER
from proofbook.runners.planner.answers.question import PlanError, Question, Strategy, strategy_of
from proofbook.runners.planner.answers.rates import range_of
from proofbook.runners.traces.files import read

Simulate = Callable[[Sequence[Question]], list[PlanAnswer]]
MOST = 24  # layouts that a search simulates
TOGETHER = 2  # of them, whatever the machine, so that the same ones are
TO_MEASURE = 3  # strategies that are known to fit once a search ends
MOST_LISTED = 6  # layouts by closed forms, which are shown before any is simulated
SLACK = 1.15  # closed forms may be off by so much
MICROBATCHES = (8, 4, 2, 1)  # times the smallest
BY_MEMORY = attrgetter("needed_bytes")


# --- the search


def strategies(cluster: Cluster, num_experts: int = 1, tensor: str = "tp-sp") -> list[Strategy]:
    """The strategies that a search tries: each axis alone, and products of two and three.

    Tensor parallelism stays within a node: in all but one of the published searches over several
    nodes, the fastest layout did. HSDP has a replica in each node; a sequence, and the experts of
    a layer, stay in one. `tensor` is the word of tensor parallelism: `tp` where a model of one's
    own brings its plan.
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
    names += [f"fsdp.{devices // n}+cp.{n}" for n in inner]
    experts = [n for n in inner if num_experts % n == 0]
    names += [f"{sharding}.{devices}+ep.{n}" for n in experts for sharding in ("zero1", "fsdp")]
    return [strategy_of(name, devices) for name in dict.fromkeys(names)]


def microbatch_of(strategy: Strategy, samples: int) -> int:
    """The microbatch with which a strategy is compared with others.

    Each rank gets as many samples, except in a pipeline, which idles less with more microbatches.
    """
    return samples if strategy.pipeline > 1 else samples * strategy.tensor


class SearchResult(NamedTuple):
    """Layouts of a search."""

    answers: list[PlanAnswer]  # every layout that was simulated, in the order in which it was
    num_left: int  # others whose memory by closed forms does not rule them out
    over: list[Layout]  # others that need far more memory than there is, by closed forms

    @property
    def counts(self) -> list[str]:
        """In words, how many were simulated, were not, and need too much memory."""
        num, num_over = len(self.answers), len(self.over)
        counts = [f"{num} layout{'s' * (num != 1)} simulated"]
        counts += [f"{self.num_left} others not simulated"] * (self.num_left > 0)
        return counts + [f"{num_over} need far more memory by closed forms"] * (num_over > 0)


def shortlist(
    question: Question,
    cluster: Cluster,
    memory_bytes: float,
    tried: Sequence[Strategy] | None = None,
) -> tuple[list[Layout], list[Layout]]:
    """Two lists of layouts by closed forms: what may fit, in the rule's order; and what cannot.

    Larger microbatches than that of the question, and recomputation, are tried too; of strategies
    those of `tried`, or all. A PlanError where no layout is possible.
    """
    shape = question.model.architecture
    if tried is None:
        tried = strategies(cluster, shape.num_experts if shape else 1)
    answers = map(closed_form.answer, valid_questions(_questions(question, tried)))
    by_memory = sorted(
        (layout_of(answer, cluster, memory_bytes) for answer in answers), key=BY_MEMORY
    )
    may = [layout for layout in by_memory if layout.needed_bytes <= SLACK * memory_bytes]
    return sorted(may, key=lambda layout: layout.priority), by_memory[len(may) :]


def shortlist_lines(listed: Sequence[Layout]) -> list[str]:
    """A line for each of the first `MOST_LISTED` layouts: name, GiB, and if perhaps too much."""
    heads = ["by closed forms:", *[""] * MOST_LISTED]
    return [
        f"{head:<19}{layout.name:<44}{layout.needed_bytes / GIB:8.1f} GiB"
        + ("" if layout.verdict == "fits" else ", perhaps too much")
        for head, layout in zip(heads, listed[:MOST_LISTED], strict=False)
    ]


def search(
    listed: tuple[Sequence[Layout], Sequence[Layout]],
    cluster: Cluster,
    memory_bytes: float,
    simulate: Simulate,
) -> SearchResult:
    """A `SearchResult`: a `shortlist`, simulated until three strategies fit or `MOST` are done."""
    left, answers = list(listed[0]), list[PlanAnswer]()
    while left and len(answers) < MOST:
        fitting = {layout.strategy for layout in layouts(answers, cluster, memory_bytes)}
        if len(fitting) >= TO_MEASURE:
            break
        left = [layout for layout in left if layout.strategy not in fitting]
        now, left = left[:TOGETHER], left[TOGETHER:]
        answers += simulate([layout.answer.question for layout in now])
    return SearchResult(answers, len(left), list(listed[1]))


def search_own_model(question: Question, cluster: Cluster, simulate: Simulate) -> SearchResult:
    """A `SearchResult`: each strategy of one's own model, simulated; a PlanError without any."""
    asked = valid_questions(
        question.model_copy(update={"strategy": strategy})
        for strategy in strategies(cluster, tensor="tp")
    )
    return SearchResult(simulate(asked), 0, [])


def valid_questions(questions: Iterator[Question]) -> list[Question]:
    """The questions that the model and the mesh allow; without any, the PlanError of the first."""
    allowed, reasons = list[Question](), list[str]()
    for question in questions:
        try:
            question.check()
        except PlanError as error:
            reasons.append(str(error))
        else:
            allowed.append(question)
    if not allowed:
        raise PlanError(reasons[0])
    return allowed


def _questions(question: Question, tried: Sequence[Strategy]) -> Iterator[Question]:
    """Each strategy with several microbatches, each with more and more recomputation."""
    training = question.training
    least = RECOMPUTATION.index(training.checkpointing)
    for checkpointing, strategy in product(RECOMPUTATION[least:], tried):
        base = {training.microbatch, microbatch_of(strategy, training.microbatch)}
        for microbatch in sorted({times * n for times, n in product(MICROBATCHES, base)}):
            changed = {"microbatch": microbatch, "checkpointing": checkpointing}
            settings = training.model_copy(update=changed)
            yield question.model_copy(update={"training": settings, "strategy": strategy})


# --- the choice among simulated layouts, and its text


class LayoutChoice(NamedTuple):
    """Layouts that fit, and those to measure."""

    fitting: list[Layout]  # all of them, in the order of the rule; by memory where it is not known
    measured: list[Layout]  # the first ones of different strategies; the first is tried first
    is_ordered: bool  # the rule is known to hold for so many devices


def choose(answers: Sequence[PlanAnswer], cluster: Cluster, memory_bytes: float) -> LayoutChoice:
    """A `LayoutChoice`: all that fit, three to measure, by rule or, past `KNOWN_TO`, memory."""
    fitting = layouts(answers, cluster, memory_bytes)
    if not fitting:
        message = f"no layout fits {memory_bytes / GIB:.4g} GiB"
        if planned := [needs(answer) for answer in answers if answer.ranks]:
            raise PlanError(f"{message}; the least needs {min(planned) / GIB:.1f}")
        raise PlanError(next((answer.reason for answer in answers if answer.reason), message))
    measured, is_ordered = to_measure(fitting), cluster.num_devices <= KNOWN_TO
    if not is_ordered:
        fitting, measured = sorted(fitting, key=BY_MEMORY), sorted(measured, key=BY_MEMORY)
    return LayoutChoice(fitting, measured, is_ordered)


def to_measure(fitting: Iterable[Layout]) -> list[Layout]:
    """The first layout of each strategy, of at most three."""
    first: dict[str, Layout] = {}
    for layout in fitting:
        first.setdefault(layout.strategy, layout)
    return [*first.values()][:TO_MEASURE]


def no_fit_error(result: SearchResult, error: PlanError, memory_bytes: float) -> PlanError:
    """Return the PlanError of a search in which nothing fits: layouts left, or the least need."""
    if result.num_left:
        simulated, left, *_ = result.counts
        return PlanError(f"no answer yet: {error}, of {simulated}; {left}")
    if not result.answers and result.over:
        least = result.over[0]
        size, its = least.needed_bytes / GIB, f"{least.name}, by closed forms"
        error = PlanError(f"no layout fits {memory_bytes / GIB:.4g} GiB; {its}, needs {size:.1f}")
    return PlanError("; ".join([str(error), *result.counts]))


def choice_lines(made: LayoutChoice, result: SearchResult, memory_bytes: float) -> list[str]:
    """Lines of text of a choice: layouts to measure, what each needs, what their order rests on."""
    heads = ["try first:", *["measure beside it:"] * TO_MEASURE]
    if not made.is_ordered:
        heads = ["measure:"] * TO_MEASURE
    lines = []
    for head, layout in zip(heads, made.measured, strict=False):
        lines += [f"{head:<19}{layout.name}", *_reasons(layout, memory_bytes)]
    lines.append(f"{'the order:':<19}{_known(is_ordered=made.is_ordered)}")
    return [*lines, f"{'tried:':<19}{'; '.join(result.counts)}"]


def _known(*, is_ordered: bool) -> str:
    """How often the first layout of the rule was near the fastest on published clusters."""
    sizes, run = ("up to", "few") if is_ordered else ("beyond", "many")
    counts = read(ORDER.path).runs[run].ranks[0].measures
    known = (
        f"{sizes} {KNOWN_TO} devices the rule's first layout was within 10 % of the fastest on "
        f"{counts['num_near']} of {counts['num_clusters']} published clusters, one of its first "
        f"three on {counts['num_near_of_three']}"
    )
    return known if is_ordered else f"not known; {known}; these fit, in the order of their memory"


def _reasons(layout: Layout, memory_bytes: float) -> list[str]:
    bounds, used = layout.bounds, f"{layout.needed_bytes / GIB:.1f} of {memory_bytes / GIB:.4g} GiB"
    lines = [f"  needs {used}: {memory_words(layout)}"]
    if layout.is_tight(memory_bytes):
        lines.append("  it nearly fills the device: measure its first steps before you rely on it")
    time = f"  a step takes at least {bounds.at_least:.3g} s, by {bounds.bottleneck}"
    if reached := range_of(layout.answer, layout.cluster):
        short, long, num = reached
        time += (
            f"; {short:.3g} to {long:.3g} s at the rates of the middle half of {num} published "
            "clusters with like models and devices"
        )
    lines.append(time)
    if seconds := layout.seconds_of_data():
        flat = layout.seconds_of_data(is_flat=True)
        hidden = "hidden" if layout.is_hidden else "not hidden"
        lines.append(
            f"  gathers and reductions take {seconds:.3g} s, {hidden} by {bounds.computing:.3g} s "
            f"of computing; {flat:.3g} s over one flat ring"
        )
    return lines
