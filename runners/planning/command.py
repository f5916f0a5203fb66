"""`python -m runners plan`: which strategies fit a model on so many devices, by simulation.

In: the words of the command line. Out: a table or JSON on standard output, progress on standard
error.
"""

import argparse
import json
import sys
from functools import partial
from math import inf, prod
from pathlib import Path
from typing import get_args

from runners.planning import grid, program, published, published_steps
from runners.planning.answer import GIB, Layout, layouts, lines, ordered
from runners.planning.configuration import architecture_of
from runners.planning.law_of_time import Cluster
from runners.planning.processes import answers
from runners.planning.question import (
    Model,
    PlanError,
    Precision,
    Question,
    Training,
    strategy_of,
)
from runners.planning.recommendation import recommendation_lines, search
from runners.plans.architecture import model_presets
from runners.system import accelerator
from runners.system.errors import unknown
from runners.traces.device_memory import H100_BYTES
from runners.traces.files import write
from runners.traces.machine import num_cores
from runners.traces.published import PEAKS, STEPS, Comparison
from runners.traces.published import lines as values_by_run
from runners.traces.records import Run

H100_FLOPS = 989e12  # in bf16, without sparsity
LONGEST = 4096  # tokens of a sample where none are named
# A word that reads no others but these, and what other words leave without effect.
_ALONE = {
    "published": {"grid"},
    "published_steps": {"grid"},
    "grid": {"preset", "confirm", "published", "published_steps"},
}
_UNREAD = {
    "outcomes": {"devices", "flops", "links", "strategies", "program", "json", "seconds"},
    "strategies": {"seconds"},
    "model": {"preset", "hf", "loss_chunks"},
    "hf": {"preset", "batch", "tensor_plan"},
    "preset": {"batch", "tensor_plan"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("preset", nargs="?", help=f"one of {', '.join(model_presets())}")
    add = parser.add_argument
    add("--hf", metavar="CONFIG", type=Path, help="a model's config.json, instead of a preset")
    own = parser.add_argument_group("a model of your own, by functions as MODULE:FUNCTION")
    own.add_argument("--model", metavar="BUILD", help="builds an nn.Module")
    own.add_argument(
        "--batch", metavar="BATCH", help="(microbatch, sequence) → its arguments, or a dictionary"
    )
    own.add_argument("--tensor-plan", metavar="PLAN", help="for parallelize_module")
    add("--devices", type=_mesh, default=(1, 8), metavar="[NODES×]N", help="such as 8 or 2x8")
    add(
        "--memory",
        type=_size,
        default=H100_BYTES / GIB,
        metavar="GIB",
        help="of a device; default: an H100's",
    )
    add("--sequence", type=_positive, metavar="S", help="tokens of a sample")
    add("--microbatch", type=_positive, default=1, metavar="B", help="samples of a forward pass")
    add("--global-batch", type=_positive, metavar="G", help="samples of an update, all ranks")
    add("--precision", choices=get_args(Precision), default="bf16-mixed")
    add("--loss-chunks", type=_positive, default=1, metavar="N", help="of the logits, in turn")
    add("--optimizer", choices=("sgd", "momentum", "adam", "adam8bit"), default="adam")
    add("--checkpointing", choices=("none", "selective", "all"), default="none")
    add("--strategies", metavar="A,B+C.2", help="such as ddp,fsdp.4+tp-sp.2; default: a search")
    add(
        "--flops",
        type=_size,
        default=H100_FLOPS,
        help="of a device per second, at its highest rate; default: an H100's",
    )
    add(
        "--links",
        type=_links,
        default=_links("450,400"),
        metavar="WITHIN,BETWEEN",
        help="GB/s that a device sends within its node, and a node to others; default: an H100's "
        "NVLink, and eight links of 400 Gbit/s",
    )
    add("--program", metavar="FILE", type=Path, help="write a program that trains in the layout")
    add("--seconds", type=_size, default=40.0, help="for the search of a layout")
    add("--published", action="store_true", help="published measurements and their simulations")
    add("--published-steps", action="store_true", help="published rates, and the law of time")
    add("--outcomes", action="store_true", help="run the plan on this accelerator, and compare")
    add("--grid", action="store_true", help="make the committed plans of a preset, or of all")
    add("--confirm", action="store_true", help="with --grid: that today's code gives the same rows")
    add("--json", action="store_true", help="every value, as JSON")


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _mesh(text: str) -> tuple[int, int]:
    """Nodes, and devices of each."""
    nodes, _, each = text.replace("×", "x").rpartition("x")
    return _positive(nodes or "1"), _positive(each)


def _links(text: str) -> tuple[float, float]:
    """Bytes a second within a node and between nodes."""
    within, _, between = text.partition(",")
    return _size(within) * 1e9, _size(between or within) * 1e9


def _size(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def _refuse_unread(asked: argparse.Namespace) -> None:
    """Refuse what the other words leave without effect."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = {one for one in vars(asked) if getattr(asked, one) != parser.get_default(one)}
    unread = {word: given - read - {word} for word, read in _ALONE.items()} | _UNREAD
    for word in filter(given.__contains__, unread):
        for name in sorted(unread[word] & given):
            raise PlanError(f"{_flag(name)} has no effect with {_flag(word)}; leave it out")
    if asked.confirm and not asked.grid:
        raise PlanError("--confirm has no effect without --grid; leave it out")


def _flag(name: str) -> str:
    return "a preset" if name == "preset" else f"--{name.replace('_', '-')}"


def main(asked: argparse.Namespace) -> int:
    """Do what an option asks for; without one, plan.

    Raises:
        PlanError, TraceError: it cannot be done.
    """
    _refuse_unread(asked)
    if asked.outcomes:
        asked.devices = 1, 1  # whatever a plan has
        return _outcomes(asked)
    if asked.published:
        simulate = partial(answers, num_workers=num_cores())
        return _published(asked, PEAKS, published.runs(published.published(), simulate))
    if asked.published_steps:
        return _published(asked, STEPS, published_steps.runs())
    if asked.program:
        _check_program(asked)
    if not asked.grid:
        return _plan(asked)
    for name in [asked.preset] if asked.preset else grid.GRIDS:
        made = (grid.confirm if asked.confirm else grid.make)(name)
        print(f"{name}: {len(made.rows)} rows, code {made.code}", flush=True)
    return 0


def _outcomes(asked: argparse.Namespace) -> int:
    """The plan of one device, and what that device then needs."""
    import torch

    from runners.planning import outcomes

    question, limit = _question(asked), asked.memory * GIB
    if not accelerator.num_devices():
        raise PlanError("outcomes need an accelerator; there is none here")
    (answer,) = answers([question], 1)
    if answer.busiest is None:
        raise PlanError(answer.reason or "there is nothing to compare")
    measured = outcomes.outcome_apart(question, limit, torch.device("cuda", 0))
    found = outcomes.lines(answer.busiest, measured, limit)
    print("\n".join([_title(question, asked), *found]))
    return 0


def _published(asked: argparse.Namespace, comparison: Comparison, runs: dict[str, Run]) -> int:
    """Print what is computed of published lists; with `--grid` write it, too."""
    if asked.grid:
        write(comparison.path, comparison.trace(runs))
    print("\n".join(values_by_run(runs)))
    return 0


def _question(asked: argparse.Namespace) -> Question:
    """The model and the training that the words name, on one device."""
    model, longest = _model(asked)
    training = Training(
        sequence=asked.sequence or min(longest, LONGEST),
        microbatch=asked.microbatch,
        global_batch=asked.global_batch or asked.microbatch * prod(asked.devices),
        precision=asked.precision,
        loss_chunks=asked.loss_chunks,
        optimizer=asked.optimizer,
        checkpointing=asked.checkpointing,
    )
    if training.sequence > longest:
        raise PlanError(f"{model.name} has positions for {longest} tokens")
    return Question(model=model, training=training, strategy=strategy_of("single", 1))


def _on_mesh(question: Question, name: str, asked: argparse.Namespace) -> Question:
    """The same in a strategy that is named, over all devices.

    Raises:
        PlanError: it is not possible.
    """
    strategy = strategy_of(name, prod(asked.devices))
    named = question.model_copy(update={"strategy": strategy})
    named.check()
    return named


def _cluster(asked: argparse.Namespace) -> Cluster:
    (nodes, per_node), (within, between) = asked.devices, asked.links
    return Cluster(nodes, per_node, asked.flops, within, between)


def _plan(asked: argparse.Namespace) -> int:
    """A table of the strategies that are named; without any, a search and a recommendation."""
    question, memory, cluster = _question(asked), asked.memory * GIB, _cluster(asked)
    model, training = question.model, question.training
    if asked.strategies:
        names = dict.fromkeys(asked.strategies.split(","))
        found = answers([_on_mesh(question, one, asked) for one in names], num_cores())
        unplanned = [one for one in found if one.reason]
        best = ordered(found, cluster, memory)
        if not best:
            raise PlanError(unplanned[0].reason or "there is nothing to plan")
        said = lines(best)
        said += [f"{one.question.strategy.name}: not planned: {one.reason}" for one in unplanned]
    else:
        simulate = partial(answers, num_workers=num_cores())
        tried = program.covered(model, training, cluster) if asked.program else None
        found, is_whole = search(model, training, cluster, memory, simulate, asked.seconds, tried)
        best, unplanned = ordered(found, cluster, memory), []
        said = recommendation_lines(found, cluster, memory, is_whole=is_whole)
        said += ["", *lines(layouts(found, cluster, memory))]
    if asked.json:
        found_ones = [one.document() for one in best] + [one.model_dump() for one in unplanned]
        print(json.dumps(found_ones, indent=1))
    else:
        print("\n".join([_title(question, asked), *said]))
    if asked.program:
        _write_program(best[0], asked)
    return 1 if any(one.has_failed for one in found) else 0


def _check_program(asked: argparse.Namespace) -> None:
    """Refuse a program before anything is simulated for it."""
    if asked.program.exists():
        raise PlanError(f"{asked.program} is there already; name another file")
    if not asked.program.parent.is_dir():
        raise PlanError(f"{asked.program.parent} is no folder; create it, or name another file")
    named = asked.strategies or ""
    if "," in named:
        raise PlanError("a program has one layout; name one of --strategies, or none for the best")
    question = _question(asked)
    program.check(_on_mesh(question, named, asked) if named else question)


def _write_program(layout: Layout, asked: argparse.Namespace) -> None:
    """Write the program of a layout, and say how to try it."""
    question, said = layout.answer.question, program.summary_of(layout)
    text = program.program_of(question, _cluster(asked), asked.program, said, layout.needed_bytes)
    asked.program.write_text(text, encoding="utf-8")
    print(f"program:     {asked.program}, which says how to start it", file=sys.stderr)


def _title(question: Question, asked: argparse.Namespace) -> str:
    training = question.training
    mesh = " × ".join(str(n) for n in asked.devices if n > 1)
    devices = f"{mesh} devices" if mesh else "one device"
    return (
        f"{question.model.name} on {devices} of {asked.memory:.4g} GiB, sequence "
        f"{training.sequence}, microbatch {training.microbatch}, global batch "
        f"{training.global_batch}, {training.precision}, {training.optimizer}, checkpointing "
        f"{training.checkpointing}; simulated"
    )


def _model(asked: argparse.Namespace) -> tuple[Model, int]:
    """The model, and the most tokens that a sample of it may have."""
    if asked.model:
        if not asked.batch:
            raise PlanError("--model needs --batch, a function of its microbatch and sequence")
        functions = {"batch": asked.batch, "tensor_plan": asked.tensor_plan}
        model = Model(name=asked.model, module=asked.model, **functions)
        return model, max(LONGEST, asked.sequence or 0)
    if asked.hf:
        shape = architecture_of(asked.hf)
        name = asked.hf.parent.resolve().name if asked.hf.name == "config.json" else asked.hf.stem
        return Model(name=name, architecture=shape), shape.context_length
    presets = model_presets()
    if not asked.preset:
        raise PlanError(f"name a preset, --hf or --model; the presets: {', '.join(presets)}")
    if asked.preset not in presets:
        raise unknown("preset", asked.preset, presets)
    shape = presets[asked.preset].architecture
    return Model(name=asked.preset, architecture=shape), shape.context_length
