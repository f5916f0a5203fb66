"""The options of `plan for`, how their numbers are read, and refusals in one line. No torch."""

import argparse
import re
from collections.abc import Iterable
from functools import partial
from math import prod
from typing import Any, get_args

from proofbook.companions.planner.answers import question
from proofbook.companions.planner.answers.devices import gpus
from proofbook.companions.planner.answers.how_many import ADAPTER_RANK
from proofbook.runners.system.errors import nearest

# No cluster, training or device comes near; more is a slip of the keyboard, and long to compute.
MOST_DEVICES, MOST_TOKENS, MOST_CHUNKS = 131_072, 100_000_000, 1024
MOST_MEMORY = 4096.0  # GiB of a device
MOST_RATE, LEAST_FLOPS, MOST_FLOPS, MOST_RANK, MOST_TRAINED = 1e6, 1e12, 1e18, 4096, 1e18
PER_NODE = 8  # devices of a node, where none are named
_ALIASES = {"fp16": "autocast", "adamw": "adam", "adamw8bit": "adam8bit", "full": "all"}
# What stands for an option that is none, by a part of its name; the first one that matches.
_MEANT = {
    "offload": "offloading to the host's memory is not planned",
    "parallel|shard|zero|pipe|expert|dp$|--[tped]p": "--strategies has it, such as fsdp.4+tp-sp.2",
    "infer|kv|serv|generat|decod": "only training is planned, not the memory of inference",
    "mfu|effic|util": "no time is predicted: divide the least one by the share that you reach",
    "seq|ctx|context": "--sequence has the tokens of a sample",
    "batch|bs$|mbs": "--global-batch has the samples of an update, --microbatch of a forward pass",
    "gpu|node|device|world": "--devices has their number, such as 2x8 for nodes × devices",
    "type|bf16|fp": "--precision has it",
    "token|step|epoch|day|hour|time": "--tokens has those of the whole training",
}


class OptionParser(argparse.ArgumentParser):
    """A parser that refuses an option that is none in one line, with the one that was meant."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """What `ArgumentParser` reads, or a PlanError where anything is left."""
        asked, left = super().parse_known_args(args, namespace)
        for word in left:
            name = word.partition("=")[0]
            meant = (says for part, says in _MEANT.items() if re.search(part, name.casefold()))
            hint = next(meant, "")
            close = f": {hint}" if hint else nearest(name, self._option_string_actions)
            raise question.PlanError(f"no option {name}{close}; `{self.prog} --help` lists all")
        return asked, left


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what a question states: the devices, the training, the strategies."""
    add = parser.add_argument_group("devices").add_argument
    names = f"default: %(default)s; {', '.join(gpus())}"
    add("--gpu", metavar="NAME", default="h100", help=names)
    add(
        "--devices",
        type=_mesh,
        metavar="[NODES×]N",
        help="such as 8 or 2x8; default: how many it takes; 16 are 2x8, 1x16 one node",
    )
    add("--memory", type=_memory, metavar="GIB", help="of a device; default: the GPU's")
    add("--flops", type=_flops, help="of a device a second, such as 989e12; default: the GPU's")
    links = "GB/s that a device sends within its node, and a node to others; default: the GPU's"
    add("--links", type=_links, metavar="WITHIN,BETWEEN", help=links)
    add = parser.add_argument_group("training").add_argument
    length = "tokens of a sample, such as 8192 or 8k; default: up to 4096"
    add("--sequence", type=_sequence, metavar="S", help=length)
    add("--microbatch", type=_positive, default=1, metavar="B", help="samples of a forward pass")
    batch = "samples of an update, all ranks; default: a microbatch for each device"
    add("--global-batch", type=_positive, metavar="G", help=batch)
    tokens = "of the whole training, such as 1e12 or 15T: how long it takes at least"
    add("--tokens", type=_tokens, metavar="T", help=tokens)
    word = partial(add, type=_word)
    precision = "bf16 has no fp32 copies of parameters; default: bf16-mixed; without bf16, autocast"
    word("--precision", choices=get_args(question.Precision), help=precision)
    word("--optimizer", choices=get_args(question.Optimizer), default="adam", help="Adam: or AdamW")
    word("--checkpointing", choices=get_args(question.Checkpointing), default="none",
         help="which activations are recomputed, or more where nothing fits else")  # fmt: skip
    rank, lora = partial(_positive, most=MOST_RANK), "adapters beside each matrix, frozen weights"
    add("--lora", type=rank, nargs="?", const=ADAPTER_RANK, metavar="RANK", help=lora)
    qlora = f"the same, with frozen weights in 4 bits; RANK is {ADAPTER_RANK} by default"
    add("--qlora", type=rank, nargs="?", const=ADAPTER_RANK, metavar="RANK", help=qlora)
    add("--frozen-bits", type=int, choices=(4, 8, 16), help="of a weight that LoRA freezes")
    chunks = partial(_positive, most=MOST_CHUNKS)
    add("--loss-chunks", type=chunks, default=1, metavar="N", help="of the logits, in turn")
    add("--loss", choices=("torch", "fused"), default="torch", help="fused: Megatron's, in place")
    add("--gradients", choices=("fp32",), help="the type in which those of microbatches add up")
    add("--reduce", choices=("each", "last"), help="microbatches whose gradients FSDP reduces")
    add("--expandable-segments", action="store_true", help="of CUDA's allocator")
    add = parser.add_argument_group("layouts").add_argument
    strategies = "such as ddp,fsdp.4+tp-sp.2; default: a search"
    add("--strategies", type=_named, metavar="A,B+C.2", help=strategies)
    simulate = "simulate the first N layouts, in seconds to minutes each; needs torch"
    add("--simulate", type=_positive, metavar="N", default=0, help=simulate)
    own = "MODULE:FUNCTION of (microbatch, sequence) → the arguments of your own model"
    add("--batch", metavar="BATCH", help=own)
    add("--tensor-plan", metavar="PLAN", help="MODULE:FUNCTION, for parallelize_module")
    parser.epilog = (
        f"words of strategies, each with the ranks of its axis:\n{question.STRATEGY_WORDS}"
    )


def _positive(text: str, most: int = MOST_TOKENS) -> int:
    if not text.isdecimal() or not 0 < (number := int(text[:20])) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {most:,}")
    return number


def _mesh(text: str) -> tuple[int, int]:
    """The nodes and the devices of each that `NODES×N` names; of N alone, nodes of eight."""
    nodes, times, each = text.replace("×", "x").replace("*", "x").rpartition("x")
    if times and not (nodes and each):
        raise argparse.ArgumentTypeError(f"{text!r} lacks a number: 8 devices, or 2x8, as NODES×N")
    mesh = _positive(nodes or "1"), _positive(each)
    if not times and mesh[1] % PER_NODE == 0:
        mesh = mesh[1] // PER_NODE, PER_NODE
    if prod(mesh) > MOST_DEVICES:
        raise argparse.ArgumentTypeError(f"at most {MOST_DEVICES:,} devices are planned")
    return mesh


def _links(text: str) -> tuple[float, float]:
    """Bytes a second within a node and between nodes, of GB a second."""
    within, _, between = text.partition(",")
    what = "rate of a link in GB/s, such as 450,50"
    rates = [_number(one, what, MOST_RATE, {"gb/s": 1}) for one in (within, between or within)]
    return rates[0] * 1e9, rates[1] * 1e9


def _number(text: str, what: str, most: float, units: dict[str, float]) -> float:
    """A number above zero, with one of these units or none."""
    read = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)([a-z/]*)", re.sub(r"[\s,_]", "", text.casefold()))
    try:
        number = float(read[1]) * (units | {"": 1.0})[read[2]] if read else 0.0
    except (KeyError, ValueError):
        number = 0.0
    if not 0 < number <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no {what} (at most {most:g})")
    return number


def _memory(text: str) -> tuple[float, str]:
    """GiB, and how another unit was read."""
    units = {"g": 1.0, "gb": 1.0, "gib": 1.0, "mib": 1 / 1024}
    gib = _number(text, "memory of a device in GiB, such as 80", MOST_MEMORY, units)
    is_sold = text.casefold().endswith("gb")
    return gib, f"{text} read as {gib:g} GiB, as cards are sold" * is_sold


def _flops(text: str) -> float:
    units = dict.fromkeys(("t", "tflops", "tflop/s"), 1e12)
    rate = _number(text, "rate of a device in FLOP/s, such as 989e12", MOST_FLOPS, units)
    if rate < LEAST_FLOPS:
        raise argparse.ArgumentTypeError(
            f"{text} FLOP/s is no accelerator's rate; {rate:g} TFLOP/s are {rate:g}e12"
        )
    return rate


def _tokens(text: str) -> float:
    units = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
    return _number(text, "number of tokens, such as 1e12 or 15T", MOST_TRAINED, units)


def _sequence(text: str) -> int:
    powers = {"k": 1024, "m": 1024**2}
    if (unit := text[-1:].casefold()) in powers:
        return _positive(text[:-1], MOST_TOKENS // powers[unit]) * powers[unit]
    return _positive(text)


def _named(text: str) -> str:
    text = re.sub(r"[=:]|(?<=p)(?<!fsdp)(?=\d)", ".", text.casefold().replace(" ", ""))
    if not all(text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} names no strategy; leave it out for a search")
    return text


def _word(text: str) -> str:
    if text == "fp8":
        why = "only products would be in 8 bits, and all states as in bf16-mixed: name that"
        raise argparse.ArgumentTypeError(f"fp8 is not planned; {why}")
    return _ALIASES.get(text.casefold(), text)
