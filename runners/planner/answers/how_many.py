"""How many devices a model needs, and what would turn a *no* into a yes.

In: a training, the memory of a device, and how many devices a node has. Out: for each strategy the
smallest number of devices that fits; and changes of a training with which it fits the devices that
there are. Closed forms choose what is simulated. No torch.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from runners.planner.answers.answer import GIB, Layout, layout
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.question import PlanError, Question, Strategy, strategy_of
from runners.planner.answers.search import Simulate, shortlist

MOST_DEVICES = 1024
_NEAR = 2  # layouts of a strategy that fit by closed forms; times the fewest devices
_CHUNKS = 8  # of the loss, where a knob is turned
_HALVINGS = 8  # of a sample


class Least(NamedTuple):
    """The smallest number of devices with which a strategy fits, and its layout there."""

    devices: int
    layout: Layout
    is_simulated: bool


def least_devices(
    question: Question, node: Cluster, memory_bytes: float, simulate: Simulate
) -> list[Least]:
    """The smallest number of devices of each strategy that fits any, the smallest first.

    Those that take few are simulated; what takes more than twice the fewest is left to closed
    forms.

    Args:
        question: the training of one device; its global batch grows with the devices.
        node: one node.
        memory_bytes: of a device.
        simulate: gives the answers of some questions.
    """
    found, pending = list[Least](), _candidates(question, node, memory_bytes)
    fewest = min((sizes[0].cluster.num_devices for sizes in pending.values()), default=0)
    for family, sizes in [*pending.items()]:
        if sizes[0].cluster.num_devices > _NEAR * fewest:
            fitting = [one for one in pending.pop(family) if one.verdict == "fits"]
            found += [Least(one.cluster.num_devices, one, False) for one in fitting[:1]]
    while pending:
        now = {family: sizes.pop(0) for family, sizes in pending.items()}
        answers = simulate([one.answer.question for one in now.values()])
        for (family, form), answer in zip(now.items(), answers, strict=True):
            one = layout(answer, form.cluster, memory_bytes) if answer.ranks else None
            if one is not None and one.verdict == "fits":
                found.append(Least(form.cluster.num_devices, one, True))
                del pending[family]
        pending = {family: sizes for family, sizes in pending.items() if sizes}
    return sorted(found, key=lambda one: (one.devices, one.layout.needed_bytes))


def _candidates(question: Question, node: Cluster, memory_bytes: float) -> dict[str, list[Layout]]:
    """Of each strategy, what may fit by closed forms, on the fewest devices first."""
    found: dict[str, list[Layout]] = {}
    devices = 1
    while devices <= MOST_DEVICES:
        cluster = node.of(devices)
        training = question.training
        batch = max(training.global_batch, training.microbatch * devices)
        settings = training.model_copy(update={"global_batch": batch})
        asked = question.model_copy(update={"training": settings})
        for family, strategy in _families(devices, node.per_node, question):
            sizes = found.setdefault(family, [])
            if sum(one.verdict == "fits" for one in sizes) >= _NEAR:
                continue
            with suppress(PlanError):
                may, _ = shortlist(asked, cluster, memory_bytes, [strategy])
                sizes += _until_it_fits(may, training.microbatch)
        devices *= 2
    return {family: sizes for family, sizes in found.items() if sizes}


def _until_it_fits(listed: Sequence[Layout], microbatch: int) -> Iterator[Layout]:
    """Layouts of this microbatch with more and more recomputation, to the first that fits."""
    for one in listed:
        if one.answer.question.training.microbatch == microbatch:
            yield one
            if one.verdict == "fits":
                return


def _families(devices: int, node: int, question: Question) -> Iterator[tuple[str, Strategy]]:
    """Strategies of so many devices, by what they are called whatever their sizes."""
    if devices == 1:
        yield "single", strategy_of("single", 1)
        return
    names = {"ddp": "ddp-view", "zero1": "zero1", "fsdp": "fsdp"}
    if devices <= node:
        names |= {"tp-sp": "tp-sp", "cp": f"fsdp.1+cp.{devices}"}
    else:
        rest = devices // node
        names |= {"fsdp+tp-sp": f"fsdp.{rest}+tp-sp.{node}", "fsdp+cp": f"fsdp.{rest}+cp.{node}"}
        names |= {"1f1b+tp-sp": f"1f1b.{rest}+tp-sp.{node}"}
    names["1f1b"] = "1f1b"
    shape = question.model.architecture
    if shape is not None and shape.num_experts > 1:
        names["fsdp+ep"] = f"fsdp.{devices}+ep.{min(devices, node)}"
    for family, name in names.items():
        yield family, strategy_of(name, devices)


def least_lines(found: list[Least], memory_bytes: float) -> list[str]:
    """A line a strategy.

    Raises:
        PlanError: none fits any number that is tried.
    """
    if not found:
        raise PlanError(f"no strategy fits {memory_bytes / GIB:.4g} GiB on {MOST_DEVICES} devices")
    return [
        f"{one.devices:>5} device{'s' * (one.devices > 1):<2} {one.layout.name:<44}"
        f"{one.layout.needed_bytes / GIB:8.1f} of {memory_bytes / GIB:.4g} GiB"
        + (", nearly full" if one.layout.is_tight(memory_bytes) else "")
        + ("" if one.is_simulated else ", by closed forms")
        for one in found
    ]


# --- what would turn a no


def knobs(
    question: Question, cluster: Cluster, memory_bytes: float, simulate: Simulate
) -> list[str]:
    """Changes of the training with which a layout fits, each tried by simulation.

    Each setting alone, and the longest sample; where none is enough, all settings together.
    """

    def tried(fields: dict[str, object]) -> list[str]:
        settings = question.training.model_copy(update=fields)
        changed = question.model_copy(update={"training": settings})
        with suppress(PlanError):
            may, _ = shortlist(changed, cluster, memory_bytes)
            for form in sorted(may, key=lambda one: one.needed_bytes)[:1]:
                (answer,) = simulate([form.answer.question])
                one = layout(answer, cluster, memory_bytes) if answer.ranks else None
                if one is not None and one.verdict == "fits":
                    flags = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in fields.items())
                    return [f"{flags}: {one.name} needs {one.needed_bytes / GIB:.1f} GiB"]
        return []

    def longest(fields: dict[str, object]) -> list[str]:
        lengths = (question.training.sequence >> n for n in range(1, _HALVINGS + 1))
        return next(filter(None, (tried(fields | {"sequence": one}) for one in lengths)), [])

    settings: dict[str, object] = {"precision": "bf16", "optimizer": "adam8bit"}
    if not question.implementation.has_loss_in_place:
        settings["loss_chunks"] = _CHUNKS
    differ = {k: v for k, v in settings.items() if getattr(question.training, k) != v}
    found = [said for name, value in differ.items() for said in tried({name: value})]
    found += longest({})
    return found or tried(differ) or longest(differ)
