"""How many devices a model needs, and the changes of a training with which it fits a cluster.

In: a training, the memory of a device, and how many devices a node has. Out: for each strategy the
smallest number of devices that fits; and changes of a training with which it fits the devices that
there are; all by closed forms. No torch.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress

from proofbook.companions.planner.answers.answer import GIB, Layout
from proofbook.companions.planner.answers.law_of_time import Cluster
from proofbook.companions.planner.answers.question import PlanError, Question, Strategy, strategy_of
from proofbook.companions.planner.answers.search import BY_MEMORY, shortlist

MOST_DEVICES = 4096
ADAPTER_RANK = 16  # of LoRA, where none is named
_CHUNKS = 8  # of the loss, where a knob is turned
_HALVINGS = 8  # of a sample


def least_devices(question: Question, node: Cluster, memory_bytes: float) -> list[Layout]:
    """Of each strategy the layout on the least devices; fewest first.

    Powers of two are tried, then numbers between the first that fits and the one before: all within
    a node, else whole nodes. The global batch of the question is that of one device, and grows with
    the devices.
    """
    minima, training = list[Layout](), question.training
    powers = [2**power for power in range(MOST_DEVICES.bit_length())]
    families = [family for n in powers for family, _ in _families(n, node.per_node, question)]

    def fitting(family: str, devices: int) -> list[Layout]:
        batch = max(training.global_batch, training.microbatch * devices)
        settings = training.model_copy(update={"global_batch": batch})
        asked = question.model_copy(update={"training": settings})
        with suppress(PlanError, KeyError):
            tried = [dict(_families(devices, node.per_node, question))[family]]
            return shortlist(asked, node.with_devices(devices), memory_bytes, tried).fitting
        return []

    for family in dict.fromkeys(families):
        if power := next((n for n in powers if fitting(family, n)), 0):
            step = 1 if power <= node.per_node else node.per_node
            numbers = [*range(power // 2 + step, power, step), power]
            first = bisect_left(numbers, 1, key=lambda n: len(fitting(family, n)[:1]))
            minima += fitting(family, numbers[first])[:1]
    return sorted(minima, key=lambda least: (least.cluster.num_devices, least.needed_bytes))


def _families(devices: int, node: int, question: Question) -> Iterator[tuple[str, Strategy]]:
    """The strategies of a number of devices, each with its name without sizes."""
    if devices == 1:
        yield "single", strategy_of("single", 1)
        return
    names = {"ddp": "ddp-view", "zero1": "zero1", "fsdp": "fsdp", "1f1b": "1f1b"}
    if devices <= node:
        names |= {"tp-sp": "tp-sp", "cp": f"fsdp.1+cp.{devices}"}
    else:
        rest = devices // node
        names |= {"fsdp+tp-sp": f"fsdp.{rest}+tp-sp.{node}", "fsdp+cp": f"fsdp.{rest}+cp.{node}"}
        names |= {"1f1b+tp-sp": f"1f1b.{rest}+tp-sp.{node}"}
    shape = question.model.architecture
    if shape is not None and shape.num_experts > 1:
        names["fsdp+ep"] = f"fsdp.{devices}+ep.{min(devices, node)}"
    for family, name in names.items():
        yield family, strategy_of(name, devices)


def least_lines(minima: list[Layout], memory_bytes: float) -> list[str]:
    """A line of text for each of `minima`: devices, layout, memory; another without any."""
    if not minima:
        return [f"no strategy fits {memory_bytes / GIB:.4g} GiB on up to {MOST_DEVICES} devices"]
    width = max(len(least.name) for least in minima)
    nums = ((least.cluster.num_devices, least) for least in minima)
    return [
        f"{num:>5} device{'s' * (num > 1):<2} {least.name:<{width}}"
        f"{least.needed_bytes / GIB:8.1f} of {memory_bytes / GIB:.4g} GiB"
        for num, least in nums
    ]


# --- changes of the training with which it fits


def changes_that_fit(
    question: Question, cluster: Cluster, memory_bytes: float, smallest: Sequence[Layout]
) -> list[str]:
    """Lines of options that make a layout fit: microbatch, bf16, adam8bit, loss, sequence, LoRA.

    The smallest microbatch, if that is enough; else with it each setting alone, and the longest
    sample; where none is enough, all settings together. Of strategies those of `smallest`, which
    need least memory without a change.
    """
    strategies = [layout.answer.question.strategy for layout in smallest]
    small: dict[str, object] = {"microbatch": 1} if question.training.microbatch > 1 else {}

    def tried(fields: dict[str, object]) -> list[str]:
        fields = small | fields
        settings = question.training.model_copy(update=fields)
        changed = question.model_copy(update={"training": settings})
        with suppress(PlanError):
            fitting = shortlist(changed, cluster, memory_bytes, strategies).fitting
            for layout in sorted(fitting, key=BY_MEMORY):
                size = f"{layout.needed_bytes / GIB:.1f} GiB"
                return [f"{_options(fields)}: {layout.name} needs {size}"]
        return []

    def longest(fields: dict[str, object]) -> list[str]:
        lengths = (question.training.sequence >> n for n in range(1, _HALVINGS + 1))
        return next(filter(None, (tried(fields | {"sequence": n}) for n in lengths if n)), [])

    if small and (enough := tried({})):
        return enough
    settings: dict[str, object] = {"optimizer": "adam8bit"}
    if question.training.precision != "autocast":  # as on devices without bf16
        settings["precision"] = "bf16"
    if not question.implementation.has_loss_in_place:
        settings["loss_chunks"] = _CHUNKS
    differ = {k: v for k, v in settings.items() if getattr(question.training, k) != v}
    changes = [change for name, value in differ.items() for change in tried({name: value})]
    changes = changes or tried(differ)
    changes += longest({}) if changes else [*longest({}), *longest(differ)]
    adapters: dict[str, object] = {"adapter_rank": question.training.adapter_rank or ADAPTER_RANK}
    quantized = adapters | {"frozen_bits": 4}
    changes += tried(adapters) or tried(quantized)
    return changes or longest(quantized)


def _options(fields: dict[str, object]) -> str:
    """The options of the command that set these fields."""
    words = {"adapter_rank": "lora", "frozen_bits": "frozen-bits"}
    flags = ((words.get(name, name.replace("_", "-")), value) for name, value in fields.items())
    return " ".join(f"--{flag} {value}" for flag, value in flags)
