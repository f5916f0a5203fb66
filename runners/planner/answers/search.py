"""What to try first for a model on a cluster, and what to measure beside it.

In: a model, a training, a cluster, and the memory of a device. Out: the layouts that were simulated
in the order of the rule (`order`), and the lines that say which to try first, what fills its memory
and how long a step takes at least. The same question has the same answer, on any machine and at any
time. No torch.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from runners.planner.answers import closed_form
from runners.planner.answers.answer import GIB, Answer, Layout, layout, layouts, needs, sizes
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.order import KNOWN_TO, RECOMPUTATION
from runners.planner.answers.published import ORDER
from runners.planner.answers.question import PlanError, Question, Strategy, strategy_of
from runners.planner.answers.rates import range_of
from runners.traces.files import read

Simulate = Callable[[Sequence[Question]], list[Answer]]
MOST = 24  # layouts that a search simulates
TOGETHER = 2  # of them, whatever the machine, so that the same ones are
TO_MEASURE = 3  # strategies that are known to fit once a search ends
MOST_LISTED = 6  # layouts by closed forms, which are shown before any is simulated
SLACK = 1.15  # closed forms may be off by so much
MICROBATCHES = (8, 4, 2, 1)  # times the smallest


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
    names += [f"fsdp.{devices // n}+cp.{n}" for n in inner]
    experts = [n for n in inner if num_experts % n == 0]
    names += [f"{sharding}.{devices}+ep.{n}" for n in experts for sharding in ("zero1", "fsdp")]
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


def shortlist(
    question: Question,
    cluster: Cluster,
    memory_bytes: float,
    tried: Sequence[Strategy] | None = None,
) -> tuple[list[Layout], list[Layout]]:
    """Layouts by closed forms: what may fit, in the order of the rule; and what cannot.

    Args:
        question: the training, with the smallest microbatch: larger ones, and recomputation, are
            tried too.
        cluster: nodes and devices.
        memory_bytes: of a device.
        tried: strategies; None for all.

    Raises:
        PlanError: no layout is possible.
    """
    shape = question.model.architecture
    if tried is None:
        tried = strategies(cluster, shape.num_experts if shape else 1)
    forms = possible(_questions(question, tried))
    found = [layout(closed_form.answer(one), cluster, memory_bytes) for one in forms]
    may = [one for one in found if one.needed_bytes <= SLACK * memory_bytes]
    over = [one for one in found if one.needed_bytes > SLACK * memory_bytes]
    return sorted(may, key=lambda one: one.place), sorted(over, key=lambda one: one.needed_bytes)


def shortlist_lines(listed: Sequence[Layout]) -> list[str]:
    """The first layouts by closed forms, before any is simulated."""
    heads = ["by closed forms:", *[""] * MOST_LISTED]
    return [
        f"{head:<19}{one.name:<44}{one.needed_bytes / GIB:8.1f} GiB"
        + ("" if one.verdict == "fits" else ", perhaps too much")
        for head, one in zip(heads, listed[:MOST_LISTED], strict=False)
    ]


def search(
    listed: tuple[Sequence[Layout], Sequence[Layout]],
    cluster: Cluster,
    memory_bytes: float,
    simulate: Simulate,
) -> Found:
    """Simulate what may fit in the order of the rule, until three strategies are known to fit.

    Args:
        listed: what `shortlist` gives.
        cluster: nodes and devices.
        memory_bytes: of a device.
        simulate: gives the answers of some questions.
    """
    left, over = list(listed[0]), list(listed[1])
    found: list[Answer] = []
    while left and len(found) < MOST:
        fitting = {one.strategy for one in layouts(found, cluster, memory_bytes)}
        if len(fitting) >= TO_MEASURE:
            break
        left = [one for one in left if one.strategy not in fitting]
        now, left = left[:TOGETHER], left[TOGETHER:]
        found += simulate([one.answer.question for one in now])
    return Found(found, len(left), over)


def each_strategy(question: Question, cluster: Cluster, simulate: Simulate) -> Found:
    """Each strategy of a model of one's own, which no closed form knows, simulated once.

    Raises:
        PlanError: no layout is possible.
    """
    asked = possible(
        question.model_copy(update={"strategy": one}) for one in strategies(cluster, tensor="tp")
    )
    return Found(simulate(asked), 0, [])


def possible(questions: Iterator[Question]) -> list[Question]:
    """Those that the model and the mesh allow.

    Raises:
        PlanError: there is none; says why of the first.
    """
    found, reasons = list[Question](), list[str]()
    for one in questions:
        try:
            one.check()
        except PlanError as error:
            reasons.append(str(error))
        else:
            found.append(one)
    if not found:
        raise PlanError(reasons[0])
    return found


def _questions(question: Question, tried: Sequence[Strategy]) -> Iterator[Question]:
    """Each strategy with several microbatches, each with more and more recomputation."""
    training = question.training
    least = RECOMPUTATION.index(training.checkpointing)
    for checkpointing, one in product(RECOMPUTATION[least:], tried):
        base = {training.microbatch, microbatch_of(one, training.microbatch)}
        for microbatch in sorted({times * n for times, n in product(MICROBATCHES, base)}):
            changed = {"microbatch": microbatch, "checkpointing": checkpointing}
            settings = training.model_copy(update=changed)
            yield question.model_copy(update={"training": settings, "strategy": one})


# --- what to try first, and what is said of it


class Choice(NamedTuple):
    """What fits, and what to measure.

    Attributes:
        fitting: every layout that fits, in the order of the rule; by memory where the rule is not
            known to hold.
        measured: the first layouts of different strategies, of which the first is tried first.
        is_ordered: the rule is known to hold for so many devices.
    """

    fitting: list[Layout]
    measured: list[Layout]
    is_ordered: bool


def choice(answers: Sequence[Answer], cluster: Cluster, memory_bytes: float) -> Choice:
    """What to try first, and what to measure beside it.

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
    of_each: dict[str, Layout] = {}
    for one in found:
        of_each.setdefault(one.strategy, one)
    measured, is_ordered = [*of_each.values()][:TO_MEASURE], cluster.num_devices <= KNOWN_TO
    if not is_ordered:
        found, measured = (
            sorted(some, key=lambda one: one.needed_bytes) for some in (found, measured)
        )
    return Choice(found, measured, is_ordered)


def none_fits(found: Found, error: PlanError, memory_bytes: float) -> PlanError:
    """Says that nothing fits, and whether all was tried."""
    tried = _simulated(found)
    over = f"{len(found.over)} need far more memory by closed forms" if found.over else ""
    if found.num_left:
        return PlanError(
            f"no answer yet: {error}, of {tried}; {found.num_left} others not simulated"
        )
    if not found.answers and found.over:
        least = found.over[0]
        size, its = least.needed_bytes / GIB, f"{least.name}, by closed forms"
        error = PlanError(f"no layout fits {memory_bytes / GIB:.4g} GiB; {its}, needs {size:.1f}")
    return PlanError("; ".join(filter(None, [str(error), tried, over])))


def choice_lines(
    made: Choice, found: Found, memory_bytes: float, command: Callable[[Layout], str]
) -> list[str]:
    """What to try first and to measure beside it, what each needs, and what the order rests on.

    Args:
        made: the choice.
        found: what was searched.
        memory_bytes: of a device.
        command: gives the command that writes a layout's program, or why there is none.
    """
    heads = ["try first:", *["measure beside it:"] * TO_MEASURE]
    if not made.is_ordered:
        heads = ["measure:"] * TO_MEASURE
    lines = []
    for head, one in zip(heads, made.measured, strict=False):
        lines += [f"{head:<19}{one.name}", *_reasons(one, memory_bytes), f"  {command(one)}"]
    lines.append(f"{'the order:':<19}{_known(is_ordered=made.is_ordered)}")
    left = f"{found.num_left} others not simulated" if found.num_left else ""
    over = f"{len(found.over)} need far more memory by closed forms" if found.over else ""
    tried = _simulated(found)
    return [*lines, f"{'tried:':<19}{'; '.join(filter(None, [tried, left, over]))}"]


def _simulated(found: Found) -> str:
    num = len(found.answers)
    return f"{num} layout{'s' * (num != 1)} simulated"


def _known(*, is_ordered: bool) -> str:
    """How often the first layout of the rule was near the fastest on published clusters."""
    table = read(ORDER.path).runs
    few = table["few" if is_ordered else "many"].ranks[0].measures
    sizes = f"up to {KNOWN_TO} devices" if is_ordered else f"beyond {KNOWN_TO} devices"
    said = (
        f"{sizes} the rule's first layout was within 10 % of the fastest on {few['num_near']} of "
        f"{few['num_clusters']} published clusters, one of its first three on "
        f"{few['num_near_of_three']}"
    )
    return said if is_ordered else f"not known; {said}; these fit, in the order of their memory"


def _reasons(one: Layout, memory_bytes: float) -> list[str]:
    bounds, used = one.bounds, f"{one.needed_bytes / GIB:.1f} of {memory_bytes / GIB:.4g} GiB"
    lines = [f"  needs {used}: {sizes(one)}"]
    if one.is_tight(memory_bytes):
        lines.append("  it nearly fills the device: measure its first steps before you rely on it")
    time = f"  a step takes at least {bounds.at_least:.3g} s, by {bounds.decides}"
    if reached := range_of(one.answer, one.cluster):
        short, long, num = reached
        time += (
            f"; {short:.3g} to {long:.3g} s at the rates of the middle half of {num} published "
            "clusters with like models and devices"
        )
    lines.append(time)
    if seconds := one.seconds_of_data():
        flat = one.seconds_of_data(is_flat=True)
        said = "hidden by" if one.is_hidden else "not hidden by"
        lines.append(
            f"  gathers and reductions take {seconds:.3g} s, {said} {bounds.computing:.3g} s of "
            f"computing; {flat:.3g} s over one flat ring"
        )
    return lines
