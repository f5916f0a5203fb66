"""What to try first for a model on a cluster, and what to measure beside it.

In: a model, a training, a cluster, and the memory of a device. Out: layouts by closed forms in the
order of the rule (`order`), and the lines that say which to try first, what fills its memory and
how long a step takes at least. The same question has the same answer, on any machine. No torch.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import ceil
from operator import attrgetter
from typing import NamedTuple

from proofbook.companions.planner.answers import closed_form
from proofbook.companions.planner.answers.answer import (
    GIB,
    Layout,
    layout_of,
    memory_words,
)
from proofbook.companions.planner.answers.architecture import Architecture
from proofbook.companions.planner.answers.law_of_time import Cluster
from proofbook.companions.planner.answers.order import KNOWN_TO, RECOMPUTATION
from proofbook.companions.planner.answers.published import ORDER
from proofbook.companions.planner.answers.question import PlanError, Question, Strategy, strategy_of
from proofbook.runners.traces.files import read

TO_MEASURE = 3  # strategies that a choice names
MICROBATCHES = (1, 2, 4, 8)  # times the smallest
STAGES = (1, 2, 4, 8, 16)
PART = 4096  # tokens of a sample below which no ranks divide it
MOST_SMALL = 16  # strategies that are tried again with other settings
BY_MEMORY = attrgetter("needed_bytes")


# --- the space


def strategies(
    cluster: Cluster,
    shape: Architecture | None = None,
    sequence: int = 0,
    tensor: str = "tp-sp",
) -> list[Strategy]:
    """The strategies that a search tries: products of all axes, those of fewer stages first.

    Tensor parallelism stays within a node: in all but one of the published searches over several
    nodes, the fastest layout did. HSDP has a replica in each node. `tensor` is the word of tensor
    parallelism: `tp` where a model of one's own brings its plan.
    """
    devices, node, nodes = cluster.num_devices, cluster.per_node, cluster.nodes
    if devices == 1:
        return [strategy_of("single", 1)]
    names = ["ddp-view", "zero1", "fsdp", "fsdp-keep"]
    inner = [n for n in (1, 2, 4, 8) if n <= node and node % n == 0]
    if nodes > 1 < node:
        names += [f"hsdp.{nodes}.{node}", f"fsdp.{devices}.{node}"]
        names += [f"hsdp.{nodes}.{node // n}+{tensor}.{n}" for n in inner[1:] if n < node]
    contexts = [n for n in inner if n == 1 or sequence >= n * PART]
    for stages, context, n in product(STAGES, contexts, inner):
        rest = devices // (stages * context * n)
        if rest * stages * context * n == devices:
            names += _products(stages, context, n, rest, tensor, shape)
    names.sort(key=lambda name: name.startswith("interleaved"))  # which seldom comes first
    return [strategy_of(name, devices) for name in dict.fromkeys(names)]


def _products(
    stages: int, context: int, n: int, rest: int, tensor: str, shape: Architecture | None
) -> Iterator[str]:
    """The names of strategies with these ranks of each axis: of stages, experts and sharding."""
    others = [f"cp.{context}"] * (context > 1) + [f"{tensor}.{n}"] * (n > 1)
    schedules = [""]
    if stages > 1:
        layers = ceil(shape.num_layers / stages) if shape else 1
        chunks = [number for number in range(2, layers + 1) if layers % number == 0]
        schedules = [f"1f1b.{stages}", *(f"interleaved.{stages}.{number}" for number in chunks)]
    of_stage, num_experts = rest * context * n, shape.num_experts if shape else 1
    experts = [1, *(2**power for power in range(1, of_stage.bit_length()))]
    experts = [size for size in experts if num_experts % size == 0 and of_stage % size == 0]
    for schedule, expert in product(schedules, experts):
        sharded = [f"zero1.{rest}"] + [f"fsdp.{rest}"] * (not schedule)
        for data in sharded if rest * context > 1 else [""]:
            ends = [f"ep.{expert}"] * (expert > 1)
            words = [schedule, data, *others, *ends]
            if words != ["", data]:  # one of the plain names
                yield "+".join(filter(None, words))


def microbatch_of(strategy: Strategy, samples: int) -> int:
    """The microbatch with which a strategy is compared with others.

    Each rank gets as many samples, except in a pipeline, which idles less with more microbatches.
    """
    return samples if strategy.pipeline > 1 else samples * strategy.tensor


class Shortlist(NamedTuple):
    """Layouts by closed forms."""

    fitting: list[Layout]  # in the order of the rule
    marginal: list[Layout]  # that fit but for the margin, in the same order
    smallest: list[Layout]  # of different strategies, those that need least, or fit
    num_strategies: int  # of which layouts were tried


def shortlist(
    question: Question,
    cluster: Cluster,
    memory_bytes: float,
    tried: Sequence[Strategy] | None = None,
) -> Shortlist:
    """The layouts that fit by closed forms, in the rule's order; a PlanError where none is valid.

    Larger microbatches than that of the question, and recomputation, are tried too; of strategies
    those of `tried`, or all. As the rule puts recomputation, and more stages on a rank, after less
    of either, they are tried only where fewer than `TO_MEASURE` strategies fit without.
    """
    training, shape = question.training, question.model.architecture
    if tried is None:
        tried = strategies(cluster, shape, training.sequence)
    valid = valid_strategies(question, tried)
    once, often = ([s for s in valid if (s.chunks > 1) == is_often] for is_often in (False, True))
    found, least = list[Layout](), dict[str, Layout]()
    for checkpointing in RECOMPUTATION[RECOMPUTATION.index(training.checkpointing) :]:
        for some in (once, often):
            for strategy in some if _num_fitting(found) < TO_MEASURE else ():
                settings = training.model_copy(update={"checkpointing": checkpointing})
                asked = question.model_copy(update={"training": settings, "strategy": strategy})
                may = [*_until_too_much(asked, cluster, memory_bytes)]
                found += [layout for layout in may if layout.verdict != "no"]
                known = [least[strategy.name]] if strategy.name in least else []
                least[strategy.name] = min([*may, *known], key=BY_MEMORY)
    found.sort(key=lambda layout: layout.priority)
    fitting, marginal = (
        [layout for layout in found if layout.verdict == verdict]
        for verdict in ("fits", "marginal")
    )
    smallest = sorted(least.values(), key=BY_MEMORY)[:MOST_SMALL]
    return Shortlist(fitting, marginal, smallest, len(valid))


def _num_fitting(found: Iterable[Layout]) -> int:
    fitting = (a for a in found if a.verdict == "fits" and not a.priority.is_stalled)
    return len({layout.strategy for layout in fitting})


def _until_too_much(question: Question, cluster: Cluster, memory_bytes: float) -> Iterator[Layout]:
    """The layouts of a strategy with larger and larger microbatches, to the first too large."""
    training = question.training
    base = {training.microbatch, microbatch_of(question.strategy, training.microbatch)}
    for microbatch in sorted({times * n for times, n in product(MICROBATCHES, base)}):
        settings = training.model_copy(update={"microbatch": microbatch})
        asked = question.model_copy(update={"training": settings})
        if training.global_batch % (microbatch * asked.strategy.data) == 0:
            layout = layout_of(closed_form.answer(asked), cluster, memory_bytes)
            yield layout
            if layout.verdict == "no":
                return


def valid_strategies(question: Question, tried: Iterable[Strategy]) -> list[Strategy]:
    """The strategies that the model and the batch allow; a PlanError, of the first, without any."""
    allowed, reasons = list[Strategy](), list[str]()
    for strategy in tried:
        asked = question.model_copy(update={"strategy": strategy})
        try:
            asked.check() if asked.model.architecture else asked.check_simulation()
        except PlanError as error:
            reasons.append(str(error))
        else:
            allowed.append(strategy)
    if not allowed:
        raise PlanError(reasons[0])
    return allowed


# --- the choice among layouts that fit, and its text


def to_measure(fitting: Sequence[Layout]) -> list[Layout]:
    """The first of the layouts in the rule's order, each of another strategy; at most three.

    Past `KNOWN_TO` devices there is no order, and they are sorted by memory.
    """
    first: dict[str, Layout] = {}
    for layout in fitting:
        first.setdefault(layout.strategy, layout)
    return _in_order([*first.values()][:TO_MEASURE])


def measured_first(fitting: Sequence[Layout]) -> list[Layout]:
    """The layouts to measure, then the others, in the rule's order or by memory."""
    measured = to_measure(fitting)
    return [*measured, *(a for a in _in_order(fitting) if a not in measured)]


def _is_ordered(fitting: Sequence[Layout]) -> bool:
    return fitting[0].cluster.num_devices <= KNOWN_TO


def _in_order(fitting: Sequence[Layout]) -> list[Layout]:
    return [*fitting] if _is_ordered(fitting) else sorted(fitting, key=BY_MEMORY)


def choice_lines(fitting: Sequence[Layout], memory_bytes: float) -> list[str]:
    """Lines of text: layouts to measure, what each needs, what their order rests on."""
    heads = ["try first:", *["measure beside it:"] * TO_MEASURE]
    if not _is_ordered(fitting):
        heads = ["measure:"] * TO_MEASURE
    lines = []
    for head, layout in zip(heads, to_measure(fitting), strict=False):
        lines += [f"{head:<19}{layout.name}", *_reasons(layout, memory_bytes)]
    if fitting[0].cluster.num_devices > 1:
        lines.append(f"{'the order:':<19}{_known(is_ordered=_is_ordered(fitting))}")
        strategies = [layout.answer.question.strategy for layout in to_measure(fitting)]
        axes = {"ep": max(s.expert for s in strategies), "cp": max(s.context for s in strategies)}
        if new := " and ".join(axis for axis, ranks in axes.items() if ranks > 1):
            lines.append(f"{'':<19}none of these clusters compares layouts with {new}")
        if axes["cp"] > 1:
            lines.append(f"{'context ranks:':<19}{_CONTEXT_RANKS}")
    return [*lines, f"{'the times:':<19}{_TIMES}"]


_CONTEXT_RANKS = "topics/long-sequences in the book says what they send, and when they wait"
_TIMES = "at the highest rates of the devices; how much longer a step takes is not predicted"


def _known(*, is_ordered: bool) -> str:
    """How often the first layout of the rule was near the fastest on published clusters."""
    sizes, run = ("up to", "few") if is_ordered else ("beyond", "many")
    counts = read(ORDER.path).runs[run].ranks[0].measures
    known = (
        f"{sizes} {KNOWN_TO} devices the rule's first layout was within 10 % of the fastest on "
        f"{counts['num_near']} of {counts['num_clusters']} published clusters"
    )
    if is_ordered:
        return known
    return f"not known; {known}; the smallest of each strategy come first, then the others"


def _reasons(layout: Layout, memory_bytes: float) -> Iterator[str]:
    bounds, asked = layout.bounds, layout.answer.question
    used = f"{layout.needed_bytes / GIB:.1f} of {memory_bytes / GIB:.4g} GiB"
    yield f"  needs {used}: {memory_words(layout)}"
    tokens = asked.training.global_batch * asked.training.sequence / asked.strategy.num_devices
    rate = f"at most {tokens / bounds.at_least:,.0f} tokens a second on each device"
    yield f"  a step takes at least {bounds.at_least:.3g} s, by {bounds.bottleneck}: {rate}"
    if sending := bounds.sending:
        best = "at best beside" if layout.is_hidden else "longer than"
        yield f"  sending takes {sending:.3g} s, {best} {bounds.computing:.3g} s of computing"
    yield from (f"  {what}" for what in bubble(asked))


def bubble(asked: Question) -> Iterator[str]:
    """What gives a pipeline as many microbatches as it has ranks, where there are fewer."""
    training, ranks, num = asked.training, asked.strategy.pipeline, asked.num_microbatches
    if num >= ranks:
        return
    samples = num * training.microbatch
    enough = [size for size in range(1, samples // ranks + 1) if samples % size == 0]
    least = ranks * training.microbatch * asked.strategy.data
    change = f"--microbatch {enough[-1]}" if enough else f"--global-batch {least}"
    busy = f"at most {num} of the {ranks} ranks of the pipeline compute{'s' * (num == 1)} at once"
    yield f"{num} microbatch{'es' * (num > 1)}: {busy}; {change} gives each rank one"
