"""How many devices a model needs, and the changes of a training with which it fits a cluster.

In: a training, the memory of a device, and how many devices a node has. Out: for each strategy the
smallest number of devices that fits; and changes of a training with which it fits the devices that
there are. Closed forms choose what is simulated. No torch.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from proofbook.runners.planner.answers.answer import GIB, Layout, layouts
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.question import PlanError, Question, Strategy, strategy_of
from proofbook.runners.planner.answers.search import Simulate, shortlist

MOST_DEVICES = 1024
_NEAR = 2  # layouts of a strategy that fit by closed forms; times the fewest devices
_CHUNKS = 8  # of the loss, where a knob is turned
_HALVINGS = 8  # of a sample


class FewestDevices(NamedTuple):
    """The smallest number of devices with which a strategy fits, and its layout there."""

    devices: int
    layout: Layout
    is_simulated: bool


def least_devices(
    question: Question, node: Cluster, memory_bytes: float, simulate: Simulate
) -> list[FewestDevices]:
    """A `FewestDevices` a strategy: least devices, a power of two, and layout; fewest first.

    Strategies that need few devices are simulated; more than twice the fewest are left to closed
    forms. The global batch of the question is that of one device, and grows with the devices.
    """
    minima, pending = list[FewestDevices](), _candidates(question, node, memory_bytes)
    fewest = min((sizes[0].cluster.num_devices for sizes in pending.values()), default=0)
    for family, sizes in [*pending.items()]:
        if sizes[0].cluster.num_devices > _NEAR * fewest:
            fits = [form for form in pending.pop(family) if form.verdict == "fits"]
            minima += [FewestDevices(form.cluster.num_devices, form, False) for form in fits[:1]]
    while pending:
        now = {family: sizes.pop(0) for family, sizes in pending.items()}
        answers = simulate([form.answer.question for form in now.values()])
        for (family, form), answer in zip(now.items(), answers, strict=True):
            for fitting in layouts([answer], form.cluster, memory_bytes):
                minima.append(FewestDevices(form.cluster.num_devices, fitting, True))
                del pending[family]
        pending = {family: sizes for family, sizes in pending.items() if sizes}
    return sorted(minima, key=lambda least: (least.devices, least.layout.needed_bytes))


def _candidates(question: Question, node: Cluster, memory_bytes: float) -> dict[str, list[Layout]]:
    """The layouts of each strategy that may fit by closed forms, on the fewest devices first."""
    by_family: dict[str, list[Layout]] = {}
    devices = 1
    while devices <= MOST_DEVICES:
        cluster = node.with_devices(devices)
        training = question.training
        batch = max(training.global_batch, training.microbatch * devices)
        settings = training.model_copy(update={"global_batch": batch})
        asked = question.model_copy(update={"training": settings})
        for family, strategy in _families(devices, node.per_node, question):
            sizes = by_family.setdefault(family, [])
            if sum(form.verdict == "fits" for form in sizes) >= _NEAR:
                continue
            with suppress(PlanError):
                may, _ = shortlist(asked, cluster, memory_bytes, [strategy])
                sizes += _until_it_fits(may, training.microbatch)
        devices *= 2
    return {family: sizes for family, sizes in by_family.items() if sizes}


def _until_it_fits(listed: Sequence[Layout], microbatch: int) -> Iterator[Layout]:
    """Layouts of this microbatch with more and more recomputation, to the first that fits."""
    for layout in listed:
        if layout.answer.question.training.microbatch == microbatch:
            yield layout
            if layout.verdict == "fits":
                return


def _families(devices: int, node: int, question: Question) -> Iterator[tuple[str, Strategy]]:
    """The strategies of a number of devices, each with its name without sizes."""
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


def least_lines(minima: list[FewestDevices], memory_bytes: float) -> list[str]:
    """A line of text for each of `minima`: devices, layout, memory; a PlanError without any."""
    if not minima:
        raise PlanError(f"no strategy fits {memory_bytes / GIB:.4g} GiB on {MOST_DEVICES} devices")
    return [
        f"{least.devices:>5} device{'s' * (least.devices > 1):<2} {least.layout.name:<44}"
        f"{least.layout.needed_bytes / GIB:8.1f} of {memory_bytes / GIB:.4g} GiB"
        + (", nearly full" if least.layout.is_tight(memory_bytes) else "")
        + ("" if least.is_simulated else ", by closed forms")
        for least in minima
    ]


# --- changes of the training with which it fits


def changes_that_fit(
    question: Question, cluster: Cluster, memory_bytes: float, simulate: Simulate
) -> list[str]:
    """Lines of options that make a layout fit, simulated: bf16, adam8bit, loss chunks, sequence.

    Each setting alone, and the longest sample; where none is enough, all settings together.
    """

    def tried(fields: dict[str, object]) -> list[str]:
        settings = question.training.model_copy(update=fields)
        changed = question.model_copy(update={"training": settings})
        with suppress(PlanError):
            may, _ = shortlist(changed, cluster, memory_bytes)
            for form in sorted(may, key=lambda form: form.needed_bytes)[:1]:
                for fitting in layouts(simulate([form.answer.question]), cluster, memory_bytes):
                    flags = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in fields.items())
                    return [f"{flags}: {fitting.name} needs {fitting.needed_bytes / GIB:.1f} GiB"]
        return []

    def longest(fields: dict[str, object]) -> list[str]:
        lengths = (question.training.sequence >> n for n in range(1, _HALVINGS + 1))
        return next(filter(None, (tried(fields | {"sequence": n}) for n in lengths)), [])

    settings: dict[str, object] = {"precision": "bf16", "optimizer": "adam8bit"}
    if not question.implementation.has_loss_in_place:
        settings["loss_chunks"] = _CHUNKS
    differ = {k: v for k, v in settings.items() if getattr(question.training, k) != v}
    changes = [change for name, value in differ.items() for change in tried({name: value})]
    changes += longest({})
    return changes or tried(differ) or longest(differ)
