"""`python -m runners plan`: which strategies fit a model on so many devices, by simulation.

    plan for MODEL          what to try first on some devices; without --devices, how many it takes
    plan check [NAME …]     the committed plans and comparisons, once more with today's code

MODEL is a preset, a model's config.json, or MODULE:FUNCTION, which builds an nn.Module.
"""

import argparse
import json
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, get_args

from proofbook.runners.core.trace.machine import num_cores
from proofbook.runners.core.trace.records import Run
from proofbook.runners.planner.answers import how_many
from proofbook.runners.planner.answers.answer import GIB, PlanAnswer, ordered, table_lines
from proofbook.runners.planner.answers.architecture import Architecture, model_presets
from proofbook.runners.planner.answers.configuration import (
    LORA,
    UnknownFamilyError,
    architecture_of,
)
from proofbook.runners.planner.answers.device_memory import H100_BYTES
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.published import COMPARISONS
from proofbook.runners.planner.answers.published import lines as values_by_run
from proofbook.runners.planner.answers.question import (
    STRATEGY_WORDS,
    Checkpointing,
    Implementation,
    Optimizer,
    PlanError,
    PlannedModel,
    Precision,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.runners.planner.answers.search import (
    LayoutChoice,
    choice_lines,
    choose,
    no_fit_error,
    search,
    search_own_model,
    shortlist,
    shortlist_lines,
)
from proofbook.runners.planner.simulated import grid
from proofbook.runners.planner.simulated.cache import answers, cached
from proofbook.runners.system.errors import unknown
from proofbook.runners.traces.files import TraceError, read, write

if TYPE_CHECKING:
    from proofbook.runners.planner.simulated import public_model

H100_FLOPS = 989e12  # in bf16, without sparsity
SCOPE = """Every parameter is trained, in 16 or 32 bits. LoRA, quantized weights, FP8 and offloading
to the host's memory are out of scope."""
LONGEST = 4096  # tokens of a sample where none are named
NODE = (1, 8)  # nodes and devices, where none are named
# No cluster, training or device comes near; more is a slip of the keyboard, and long to compute.
MOST_DEVICES, MOST_TOKENS, MOST_CHUNKS = 131_072, 100_000_000, 1024
MOST_GIB, MOST_FLOPS = 1e6, 1e18


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add to a parser the subcommands `for` and `check`, and what each takes."""
    parser.description, parser.formatter_class = __doc__, argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="do", metavar="for | check")
    presets = f"one of {', '.join(model_presets())}; or config.json; or MODULE:FUNCTION"
    says = "what to try first; without --devices, how many it takes"
    of = commands.add_parser(
        "for", help=says, description=SCOPE, formatter_class=parser.formatter_class
    )
    of.add_argument("model", metavar="MODEL", help=presets)
    _add_options(of)
    of.add_argument("--json", action="store_true", help="every value, as JSON")
    check = commands.add_parser("check", help="the committed plans, once more with today's code")
    every = (*grid.GRIDS, *COMPARISONS)
    check.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(every)}")
    check.add_argument("--write", action="store_true", help="write what differs or is stale")


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    batch = "MODULE:FUNCTION of (microbatch, sequence) → the arguments of your own model"
    add("--batch", metavar="BATCH", help=batch)
    add("--tensor-plan", metavar="PLAN", help="MODULE:FUNCTION, for parallelize_module")
    h100, memory = H100_BYTES / GIB, "of a device; default: an H100's"
    add("--memory", type=_size, default=h100, metavar="GIB", help=memory)
    add("--sequence", type=_positive, metavar="S", help="tokens of a sample")
    add("--microbatch", type=_positive, default=1, metavar="B", help="samples of a forward pass")
    add("--global-batch", type=_positive, metavar="G", help="samples of an update, all ranks")
    add("--precision", choices=get_args(Precision), default="bf16-mixed")
    chunks = partial(_positive, most=MOST_CHUNKS)
    add("--loss-chunks", type=chunks, default=1, metavar="N", help="of the logits, in turn")
    add("--loss", choices=("torch", "fused"), default="torch", help="fused: Megatron's, in place")
    add("--gradients", choices=("fp32",), help="the type in which those of microbatches add up")
    optimizers = get_args(Optimizer)
    add("--optimizer", type=_optimizer, choices=optimizers, default="adam")
    lora = ("--lora", "--qlora", "--lora-rank", "--peft")
    add(*lora, type=_lora, nargs="?", const="", help=argparse.SUPPRESS)
    add("--checkpointing", choices=get_args(Checkpointing), default="none")
    add("--devices", type=_mesh, metavar="[NODES×]N", help="such as 8 or 2x8")
    strategies = "such as ddp,fsdp.4+tp-sp.2; default: a search"
    add("--strategies", type=_named, metavar="A,B+C.2", help=strategies)
    flops = "of a device per second, at its highest rate; default: an H100's"
    add("--flops", type=partial(_size, most=MOST_FLOPS), default=H100_FLOPS, help=flops)
    links = (
        "GB/s that a device sends within its node, and a node to others; default: an H100's "
        "NVLink, and eight links of 400 Gbit/s"
    )
    add("--links", type=_links, default="450,400", metavar="WITHIN,BETWEEN", help=links)
    add("--reduce", choices=("each", "last"), help="microbatches whose gradients FSDP reduces")
    add("--expandable-segments", action="store_true", help="of CUDA's allocator")
    parser.epilog = f"words of strategies, each with the ranks of its axis:\n{STRATEGY_WORDS}"


def _positive(text: str, most: int = MOST_TOKENS) -> int:
    if not text.isdecimal() or not 0 < (number := int(text[:20])) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {most:,}")
    return number


def _mesh(text: str) -> tuple[int, int]:
    """The nodes and the devices of each that `NODES×N` names."""
    nodes, _, each = text.replace("×", "x").rpartition("x")
    mesh = _positive(nodes or "1"), _positive(each)
    if prod(mesh) > MOST_DEVICES:
        raise argparse.ArgumentTypeError(f"at most {MOST_DEVICES:,} devices are planned")
    return mesh


def _links(text: str) -> tuple[float, float]:
    """Bytes a second within a node and between nodes, of GB a second."""
    within, _, between = text.partition(",")
    return _size(within) * 1e9, _size(between or within) * 1e9


def _size(text: str, most: float = MOST_GIB) -> float:
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


def _lora(_: str) -> NoReturn:
    raise argparse.ArgumentTypeError(LORA)


def _optimizer(text: str) -> str:
    return _lora(text) if "lora" in text else text


def main(asked: argparse.Namespace) -> int:
    """Plan a model, or check committed plans; return the exit code."""
    match asked.do:
        case None:
            raise PlanError(f"say what to do: `plan for {next(iter(grid.GRIDS))}`, or see --help")
        case "check":
            return _check(asked.names, is_writing=asked.write)
    is_open = asked.devices is None and not asked.strategies
    asked.devices = asked.devices or NODE
    question = _question(asked)
    if is_open:
        return _how_many(question, asked)
    return _plan(question, asked)


def _check(names: list[str], *, is_writing: bool) -> int:
    """Make committed files again; 1 where one differs, or is of other code, and is not written."""
    known, is_same = (*grid.GRIDS, *COMPARISONS), True
    for name in names:
        if name not in known:
            raise unknown("plan", name, known)
    for name in names or known:
        check = _check_comparison if name in COMPARISONS else grid.check
        outcome = check(name, is_writing=is_writing)
        is_same &= is_writing or outcome == grid.SAME
        print(f"{name}: {outcome}", flush=True)
    return 0 if is_same else 1


def _check_comparison(name: str, *, is_writing: bool) -> str:
    """Compute a published comparison again, print it, and say whether the committed one holds."""
    comparison = COMPARISONS[name]
    runs = comparison.runs()
    print("\n".join(values_by_run(runs)))
    try:
        trace = read(comparison.path)
        is_equal = _values(trace.runs) == _values(runs)
        is_same = is_equal and trace.code.digest == comparison.digest
    except TraceError:
        is_same = False
    if is_writing and not is_same:
        write(comparison.path, comparison.trace(runs))
    return grid.outcome_words(is_same=is_same, is_writing=is_writing)


def _values(runs: dict[str, Run]) -> dict[str, object]:
    """The settings and the measures of each run, without the seconds of its simulation."""
    return {name: (run.settings, run.ranks[0].measures) for name, run in runs.items()}


def _question(asked: argparse.Namespace) -> Question:
    """The model and the training that the words name, on one device."""
    model, longest = _model(asked)
    training = TrainingSettings(
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
    implementation = Implementation(
        has_loss_in_place=asked.loss == "fused",
        has_wide_gradients=asked.gradients == "fp32",
        has_expandable_segments=asked.expandable_segments,
        reduces_each=asked.reduce and asked.reduce == "each",
    )
    single = strategy_of("single", 1)
    return Question(model=model, training=training, implementation=implementation, strategy=single)


def _on_mesh(question: Question, name: str, asked: argparse.Namespace) -> Question:
    """The question in a named strategy, over all devices; a PlanError where it is not possible."""
    strategy = strategy_of(name, prod(asked.devices))
    named = question.model_copy(update={"strategy": strategy})
    named.check()
    return named


def _cluster(asked: argparse.Namespace) -> Cluster:
    (nodes, per_node), (within, between) = asked.devices, asked.links
    return Cluster(nodes, per_node, asked.flops, within, between)


def _how_many(question: Question, asked: argparse.Namespace) -> int:
    """Print the fewest devices that each strategy takes; a PlanError where that is unknown."""
    if question.model.architecture is None:
        raise PlanError(f"name --devices: no closed form knows {asked.model}, to say how many")
    simulate = partial(cached, num_workers=num_cores())
    single = question.training.model_copy(update={"global_batch": asked.global_batch or 1})
    alone = question.model_copy(update={"training": single})
    minima = how_many.least_devices(alone, _cluster(asked), asked.memory * GIB, simulate)
    output = [_title(question, asked, is_open=True)]
    output += how_many.least_lines(minima, asked.memory * GIB)
    if asked.json:
        output = [json.dumps([least.layout.document() for least in minima], indent=1)]
    print("\n".join(output))
    return 0


def _plan(question: Question, asked: argparse.Namespace) -> int:
    """Print the layouts to try first, or a table of the strategies that are named."""
    memory, cluster = asked.memory * GIB, _cluster(asked)
    if asked.strategies is not None:
        names = dict.fromkeys(asked.strategies.split(","))
        simulated = answers([_on_mesh(question, name, asked) for name in names], num_cores())
        unplanned = [answer for answer in simulated if answer.reason]
        best = ordered(simulated, cluster, memory)
        if not best:
            raise PlanError(unplanned[0].reason or "there is nothing to plan")
        output = [_title(question, asked), *table_lines(best)]
        output += [f"{a.question.strategy.name}: not planned: {a.reason}" for a in unplanned]
    else:
        simulated, made, output = _searched(question, cluster, memory, asked)
        unplanned = []
        best = [*made.measured, *(layout for layout in made.fitting if layout not in made.measured)]
    if asked.json:
        documents = [a.document() for a in best] + [a.model_dump() for a in unplanned]
        print(json.dumps(documents, indent=1))
    else:
        print("\n".join(output))
    return 1 if any(answer.has_failed for answer in simulated) else 0


def _searched(
    question: Question, cluster: Cluster, memory: float, asked: argparse.Namespace
) -> tuple[list[PlanAnswer], LayoutChoice, list[str]]:
    """Simulated layouts, the choice among them, and its text; a PlanError says what would fit."""
    model = question.model
    simulate = partial(cached if model.architecture else answers, num_workers=num_cores())
    if model.architecture is None:
        output = [_title(question, asked)]
        searched = search_own_model(question, cluster, simulate)
    else:
        listed = shortlist(question, cluster, memory)
        output = []
        if not asked.json:  # at once, before anything is simulated
            print("\n".join([_title(question, asked), *shortlist_lines(listed[0])]), flush=True)
        searched = search(listed, cluster, memory, simulate)
    try:
        made = choose(searched.answers, cluster, memory)
    except PlanError as error:
        refused = no_fit_error(searched, error, memory)
        would = "; not tried: --precision bf16, --optimizer adam8bit, --checkpointing all"
        if model.architecture is not None:
            turned = how_many.changes_that_fit(question, cluster, memory, simulate)
            would = "; it fits with ".join(["", *turned]) or "; no other setting turns that"
        raise PlanError(f"{refused}{would}") from None
    output += choice_lines(made, searched, memory)
    return searched.answers, made, [*output, "", *table_lines(made.fitting)]


def _title(question: Question, asked: argparse.Namespace, *, is_open: bool = False) -> str:
    training = question.training
    mesh = " × ".join(str(n) for n in asked.devices if n > 1)
    devices = "how many devices" if is_open else f"{mesh} devices" if mesh else "one device"
    batch = f"{asked.global_batch or 'one for each device'}" if is_open else training.global_batch
    return (
        f"{question.model.name}{_parameters(question.model)}, on {devices} of {asked.memory:.4g} "
        f"GiB, sequence {training.sequence}, microbatch {training.microbatch}, global batch "
        f"{batch}, {training.precision}, {training.optimizer}, checkpointing "
        f"{training.checkpointing}; simulated"
    )


def _parameters(model: PlannedModel) -> str:
    """The number of parameters, and of active ones where they are fewer; "" for an own model."""
    if (sizes := _sizes(model)) is None:
        return ""
    total, active = sizes.num_parameters, sizes.active_parameters
    return f", {_short(total)} parameters" + f" ({_short(active)} active)" * (active < total)


def _short(number: int) -> str:
    return f"{number / 1e9:.1f} B" if number >= 1e9 else f"{number / 1e6:.1f} M"


def _sizes(model: PlannedModel) -> "Architecture | public_model.ModelSizes | None":
    """The sizes of a model that are known without simulating it; None of one's own."""
    if not model.configuration:
        return model.architecture
    from proofbook.runners.planner.simulated import public_model

    return public_model.sizes(model.configuration)


def _model(asked: argparse.Namespace) -> tuple[PlannedModel, int]:
    """The model that the command names, and the most tokens that a sample of it may have."""
    is_own, presets = ":" in asked.model, model_presets()
    if is_own:
        functions = {"batch": asked.batch, "tensor_plan": asked.tensor_plan}
        model = PlannedModel(name=asked.model, module=asked.model, **functions)
    elif asked.model in presets:
        model = PlannedModel(name=asked.model, architecture=presets[asked.model].architecture)
    else:
        model = _model_of_file(asked.model)
    without_effect = {
        "--loss-chunks": asked.loss_chunks > 1 and not model.architecture,
        "--loss": asked.loss != "torch" and not model.architecture,
        "--batch": asked.batch and not is_own,
        "--tensor-plan": asked.tensor_plan and not is_own,
    }
    for flag in (flag for flag, is_given in without_effect.items() if is_given):
        raise PlanError(f"{flag} has no effect with {asked.model}; leave it out")
    if not model.batch and is_own:
        raise PlanError(f"{asked.model} needs --batch, of its microbatch and sequence")
    longest = sizes.context_length if (sizes := _sizes(model)) else 0
    return model, longest or max(LONGEST, asked.sequence or 0)


def _model_of_file(name: str) -> PlannedModel:
    """The model of a configuration file, by our own reading of its family or by transformers."""
    path = Path(name)
    if path.suffix != ".json":
        raise unknown("preset", name, model_presets())
    name = path.parent.resolve().name if path.name == "config.json" else path.stem
    try:
        return PlannedModel(name=name, architecture=architecture_of(path))
    except UnknownFamilyError:
        from proofbook.runners.planner.simulated import public_model

        return public_model.model_of(path, name)
