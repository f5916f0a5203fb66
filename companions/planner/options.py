"""The options of `plan for`, and refusals in one line. No torch."""

import argparse
from functools import partial
from math import prod
from typing import get_args

from proofbook.companions.planner.answers import question
from proofbook.companions.planner.answers.devices import gpus
from proofbook.companions.planner.answers.how_many import ADAPTER_RANK

# No cluster, training or device comes near; more is a slip of the keyboard, and long to compute.
MOST_DEVICES, MOST_TOKENS, MOST_CHUNKS = 131_072, 100_000_000, 1024
MOST_MEMORY = 4096.0  # GiB of a device
MOST_RATE, LEAST_FLOPS, MOST_FLOPS, MOST_RANK = 1e6, 1e12, 1e18, 4096
_OTHER_PRECISIONS = {
    "fp16": "it takes the memory of autocast: name that",
    "fp8": "only products would be in 8 bits, and all states as in bf16-mixed: name that",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what a question states: the devices, the training, the strategies."""
    add = parser.add_argument_group("devices").add_argument
    add("--gpu", metavar="NAME", help=f"default: h100; {', '.join(gpus())}")
    add(
        "--devices",
        type=_mesh,
        metavar="[NODES×]N",
        help="such as 8 or 2x8; default: how many it takes",
    )
    add("--memory", type=_gib, metavar="GIB", help="of a device; default: the GPU's")
    add("--flops", type=_flops, help="of a device a second, such as 989e12; default: the GPU's")
    links = "GB/s that a device sends within its node, and a node to others; default: the GPU's"
    add("--links", type=_links, metavar="WITHIN,BETWEEN", help=links)
    add = parser.add_argument_group("training").add_argument
    add("--sequence", type=_positive, metavar="S", help="tokens of a sample; default: up to 4096")
    add("--microbatch", type=_positive, default=1, metavar="B", help="samples of a forward pass")
    batch = "samples of an update, all ranks; default: a microbatch for each device"
    add("--global-batch", type=_positive, metavar="G", help=batch)
    known = get_args(question.Precision)
    precision = "default: bf16-mixed, or autocast on a GPU without bf16"
    add("--precision", type=_precision, choices=known, help=precision)
    add("--optimizer", choices=get_args(question.Optimizer), default="adam")
    add("--checkpointing", choices=get_args(question.Checkpointing), default="none")
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
    """The nodes and the devices of each that `NODES×N` names."""
    nodes, times, each = text.replace("×", "x").rpartition("x")
    if times and not (nodes and each):
        raise argparse.ArgumentTypeError(f"{text!r} lacks a number: 8 devices, or 2x8, as NODES×N")
    mesh = _positive(nodes or "1"), _positive(each)
    if prod(mesh) > MOST_DEVICES:
        raise argparse.ArgumentTypeError(f"at most {MOST_DEVICES:,} devices are planned")
    return mesh


def _links(text: str) -> tuple[float, float]:
    """Bytes a second within a node and between nodes, of GB a second."""
    within, _, between = text.partition(",")
    return _size(within) * 1e9, _size(between or within) * 1e9


def _gib(text: str) -> float:
    number = text.casefold().removesuffix("b").removesuffix("i").removesuffix("g").strip()
    try:
        return _size(number, MOST_MEMORY)
    except argparse.ArgumentTypeError:
        says = f"{text!r} is no memory of a device in GiB, such as 80 (at most {MOST_MEMORY:g})"
        raise argparse.ArgumentTypeError(says) from None


def _flops(text: str) -> float:
    rate = _size(text, MOST_FLOPS)
    if rate < LEAST_FLOPS:
        raise argparse.ArgumentTypeError(
            f"{text} FLOP/s is no accelerator's rate; {rate:g} TFLOP/s are {rate:g}e12"
        )
    return rate


def _size(text: str, most: float = MOST_RATE) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0, up to {most:.0e}")
    return number


def _named(text: str) -> str:
    if not all(text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} names no strategy; leave it out for a search")
    return text


def _precision(text: str) -> str:
    if why := _OTHER_PRECISIONS.get(text):
        raise argparse.ArgumentTypeError(f"{text} is not planned; {why}")
    return text
