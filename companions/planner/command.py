"""`python -m runners plan`: which strategies fit a model on so many devices, in a second.

    plan for MODEL          what to try first on some devices; without --devices, how many it takes
    plan check [NAME …]     the committed plans and comparisons, once more with today's code

MODEL is a preset, a model's config.json, or MODULE:FUNCTION, which builds an nn.Module. Answers are
closed forms; `--simulate N` simulates the first N layouts, as models of your own always are. The
exit code is 0 where a layout fits, or the committed plans are the same, 2 where the question is
refused, and else 1. `plan for --help` lists the options; among the questions that it answers are

    plan for llama-70b --gpu h200                      how many devices does it take?
    plan for llama-8b --devices 2x8 --tokens 1e12      what to try first, how long at least?
    plan for config.json --devices 1 --gpu 4090 --lora does it fit, or what would make it fit?
    plan for llama-8b --devices 8 --strategies ddp,fsdp.4+tp-sp.2   which of these fit?
"""

import argparse
import importlib.util
import json
from collections.abc import Sequence
from math import prod

from proofbook.companions.planner.answers import closed_form, how_many, search
from proofbook.companions.planner.answers.answer import (
    GIB,
    Layout,
    PlanAnswer,
    duration,
    layout_of,
    least,
    ordered,
    table_lines,
)
from proofbook.companions.planner.answers.architecture import model_presets
from proofbook.companions.planner.answers.device_memory import FORM_ERROR
from proofbook.companions.planner.answers.devices import gpu_of
from proofbook.companions.planner.answers.law_of_time import Cluster
from proofbook.companions.planner.answers.models import model_of
from proofbook.companions.planner.answers.published import COMPARISONS
from proofbook.companions.planner.answers.question import (
    FrozenBits,
    Implementation,
    PlanError,
    PlannedModel,
    Precision,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.companions.planner.options import PER_NODE, OptionParser, add_options
from proofbook.companions.planner.simulated import grid
from proofbook.companions.planner.simulated.cache import answers, cached
from proofbook.runners.core.trace.machine import num_cores
from proofbook.runners.core.trace.records import Run
from proofbook.runners.system.errors import FixableError, unknown
from proofbook.runners.system.progress_lines import say
from proofbook.runners.traces.files import TraceError, read, write

SCOPE = """Every parameter is trained in 16 or 32 bits, or LoRA's adapters beside frozen weights
(--lora, --qlora). FP8, offloading to the host's memory, and the memory of inference are out of
scope."""
LONGEST = 4096  # tokens of a sample where none are named
NODE = (1, PER_NODE)  # nodes and devices, where none are named
MOST_LISTED = 12  # layouts of a table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add to a parser the subcommands `for` and `check`, and what each takes."""
    parser.description, parser.formatter_class = __doc__, argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="do", metavar="for | check", parser_class=OptionParser)
    presets = f"one of {', '.join(model_presets())}; or config.json; or MODULE:FUNCTION"
    of = commands.add_parser(
        "for",
        usage="%(prog)s MODEL [option …], as --help lists them",
        help="what to try first; without --devices, how many it takes",
        description=SCOPE,
        formatter_class=parser.formatter_class,
    )
    of.add_argument("model", metavar="MODEL", help=presets)
    of.add_argument("--json", action="store_true", help="every value, as JSON")
    add_options(of)
    check = commands.add_parser("check", help="the committed plans, once more with today's code")
    every = (*grid.GRIDS, *COMPARISONS)
    check.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(every)}")
    check.add_argument("--write", action="store_true", help="write what differs or is stale")


def main(asked: argparse.Namespace) -> int:
    """Plan a model, or check committed plans; return the exit code."""
    match asked.do:
        case None:
            raise PlanError(f"say what to do: `plan for {next(iter(grid.GRIDS))}`, or see --help")
        case "check":
            _need_torch("plan check")
            return _check(asked.names, is_writing=asked.write)
    is_open = asked.devices is None and not asked.strategies
    asked.devices = asked.devices or NODE
    question, cluster, memory = _question(asked), _cluster(asked), _memory(asked)
    if question.model.architecture is None:
        return _plan_own_model(question, cluster, memory, asked)
    if is_open:
        return _how_many(question, cluster, memory, asked)
    if asked.strategies:
        return _compare(question, cluster, memory, asked)
    return _search(question, cluster, memory, asked)


# --- the question


def _question(asked: argparse.Namespace) -> Question:
    """The model and the training that the words name, on one device."""
    model, longest = _model(asked)
    rank = asked.lora or asked.qlora or 0
    bits: FrozenBits = asked.frozen_bits or (4 if asked.qlora else 16)
    if asked.frozen_bits and not rank:
        raise PlanError("--frozen-bits has no effect without --lora; every parameter is trained")
    training = TrainingSettings(
        sequence=asked.sequence or min(longest, LONGEST),
        microbatch=asked.microbatch,
        global_batch=asked.global_batch or asked.microbatch * prod(asked.devices),
        precision=_precision(asked),
        loss_chunks=asked.loss_chunks,
        optimizer=asked.optimizer,
        checkpointing=asked.checkpointing,
        adapter_rank=rank,
        frozen_bits=bits,
    )
    if training.sequence > longest:
        raise PlanError(
            f"{model.name} has positions for {longest:,} tokens; for more, plan its config.json "
            "with a larger max_position_embeddings"
        )
    implementation = Implementation(
        has_loss_in_place=asked.loss == "fused",
        has_wide_gradients=asked.gradients == "fp32",
        has_expandable_segments=asked.expandable_segments,
        reduces_each=asked.reduce and asked.reduce == "each",
    )
    single = strategy_of("single", 1)
    return Question(model=model, training=training, implementation=implementation, strategy=single)


def _model(asked: argparse.Namespace) -> tuple[PlannedModel, int]:
    """The model that the command names, and the most tokens that a sample of it may have."""
    is_own = ":" in asked.model
    if is_own:
        functions = {"batch": asked.batch, "tensor_plan": asked.tensor_plan}
        model = PlannedModel(name=asked.model, module=asked.model, **functions)
    else:
        model = model_of(asked.model, freezes=bool(asked.frozen_bits or asked.qlora))
    usual = {"loss": "torch", "loss_chunks": 1}
    for name in ("loss", "loss_chunks", "lora", "qlora") if is_own else ("batch", "tensor_plan"):
        if getattr(asked, name) != usual.get(name):
            flag, other = name.replace("_", "-"), "name --global-batch" * (name == "batch")
            raise PlanError(f"--{flag} has no effect with {asked.model}; {other or 'leave it out'}")
    if not model.batch and is_own:
        raise PlanError(f"{asked.model} needs --batch, of its microbatch and sequence")
    if model.architecture is None:
        return model, max(LONGEST, asked.sequence or 0)
    return model, model.architecture.context_length


def _precision(asked: argparse.Namespace) -> Precision:
    gpu = gpu_of(asked.gpu)
    precision: Precision = asked.precision or ("bf16-mixed" if gpu.has_bf16 else "autocast")
    if precision.startswith("bf16") and not gpu.has_bf16:
        raise PlanError(f"{gpu.title} has no bf16; name --precision autocast, with fp16, or fp32")
    return precision


def _memory(asked: argparse.Namespace) -> float:
    return (asked.memory[0] if asked.memory else gpu_of(asked.gpu).memory_mib / 1024) * GIB


def _cluster(asked: argparse.Namespace) -> Cluster:
    gpu, (nodes, per_node) = gpu_of(asked.gpu), asked.devices
    within, between = asked.links or (gpu.within, gpu.between)
    return Cluster(nodes, per_node, asked.flops or gpu.flops, within, between)


def _on_mesh(question: Question, name: str, cluster: Cluster) -> Question:
    """The question in a named strategy, over all devices; a PlanError where it is not possible."""
    strategy = strategy_of(name, cluster.num_devices)
    named = question.model_copy(update={"strategy": strategy})
    named.check() if named.model.architecture else named.check_simulation()
    return named


# --- answers


def _how_many(
    question: Question, cluster: Cluster, memory: float, asked: argparse.Namespace
) -> int:
    """Print the fewest devices that each strategy takes."""
    single = question.training.model_copy(update={"global_batch": asked.global_batch or 1})
    alone = question.model_copy(update={"training": single})
    minima = how_many.least_devices(alone, cluster, memory)
    lines = [_title(question, asked, memory, is_open=True)]
    lines += how_many.least_lines(minima, memory)
    lines.append(
        f"each number up to {PER_NODE} was tried, and whole nodes of {PER_NODE} beyond, where they "
        "divide the model and the batch"
    )
    return _print(lines, minima, asked)


def _search(question: Question, cluster: Cluster, memory: float, asked: argparse.Namespace) -> int:
    """Print whether any layout fits, which to try first, and what would turn a no."""
    listed = search.shortlist(question, cluster, memory)
    fitting = listed.fitting or sorted(listed.marginal, key=search.BY_MEMORY)
    lines = [_title(question, asked, memory), f"{'fits:':<19}{_verdict(listed, memory)}"]
    if not listed.fitting:
        turned = how_many.changes_that_fit(question, cluster, memory, listed.smallest)
        turned = turned or ["nothing that was tried, QLoRA and shorter samples included"]
        heads = ["it fits with:", *[""] * len(turned)]
        lines += [f"{head:<19}{what}" for head, what in zip(heads, turned, strict=False)]
    if fitting:
        lines += [*search.choice_lines(fitting, memory), ""]
        fitting = search.measured_first(fitting)
    if asked.simulate and fitting:
        asked_of = [layout.answer.question for layout in fitting[: asked.simulate]]
        lines += _table(_simulated(asked_of, cluster, memory), len(asked_of))
    elif fitting:
        lines += _table(fitting, MOST_LISTED)
    return _print(lines, fitting or listed.smallest[:1], asked)


def _verdict(listed: search.Shortlist, memory: float) -> str:
    num, margin = listed.num_strategies, f"{100 * FORM_ERROR:g} %"
    tried = f"{num} strateg{'y' if num == 1 else 'ies'} tried"
    if listed.fitting:
        return f"yes, by closed forms with a margin of {margin}; {tried}"
    if listed.marginal:
        adapts = listed.smallest[0].answer.question.training.adapter_rank
        tells = "" if adapts else "; --simulate 1 tells"
        one = min(listed.marginal, key=search.BY_MEMORY)
        sizes = [f"{size / GIB:.1f}" for size in (least(one.answer), one.needed_bytes)]
        says = f"{one.name} needs from {sizes[0]} to {sizes[1]} of {memory / GIB:.4g} GiB"
        return f"perhaps: {says}, by closed forms{tells}; {tried}"
    one = listed.smallest[0]
    size = f"{one.needed_bytes / GIB:.1f} of {memory / GIB:.4g} GiB"
    more = "; how many it takes: leave out --devices"
    return f"no; what needs least, {one.name}, needs {size}{more}; {tried}"


def _compare(question: Question, cluster: Cluster, memory: float, asked: argparse.Namespace) -> int:
    """Print a table of the strategies that are named, by closed forms; simulated if asked for."""
    names = dict.fromkeys(asked.strategies.split(","))
    questions = [_on_mesh(question, name, cluster) for name in names]
    best = ordered([closed_form.answer(one) for one in questions], cluster, memory)
    lines = [_title(question, asked, memory), *_table(best, len(best))]
    lines += [f"{a.strategy}: {what}" for a in best for what in search.bubble(a.answer.question)]
    if asked.checkpointing != "all" and any(layout.verdict != "fits" for layout in best):
        lines.append("with --checkpointing all, activations take less")
    if asked.simulate:
        some = _simulated([a.answer.question for a in best[: asked.simulate]], cluster, memory)
        lines, best = [*lines, "", "simulated:", *_table(some, len(some))], some
    return _print(lines, best, asked)


def _plan_own_model(
    question: Question, cluster: Cluster, memory: float, asked: argparse.Namespace
) -> int:
    """Print the layouts of a model that no closed form knows, simulated."""
    if asked.strategies:
        tried = [_on_mesh(question, name, cluster).strategy for name in asked.strategies.split(",")]
    else:
        tried = search.valid_strategies(question, search.strategies(cluster, tensor="tp"))
    tried = tried[: asked.simulate or None]
    questions = [question.model_copy(update={"strategy": strategy}) for strategy in tried]
    best = _simulated(questions, cluster, memory)
    lines = [_title(question, asked, memory) + "; simulated"]
    if not asked.strategies and (fitting := [a for a in best if a.verdict == "fits"]):
        lines += [*search.choice_lines(fitting, memory), ""]
    return _print([*lines, *_table(best, len(best))], best, asked)


def _simulated(questions: Sequence[Question], cluster: Cluster, memory: float) -> list[Layout]:
    """The layouts of questions, simulated; those that are known when Ctrl-C stops it."""
    _need_torch("--simulate")
    num, known = num_cores(), list[PlanAnswer]()
    simulate = cached if questions[0].model.architecture else answers
    say(f"{len(questions)} layouts to simulate; Ctrl-C keeps those that are done")
    try:
        for first in range(0, len(questions), num):
            known += simulate(questions[first : first + num], num)
    except KeyboardInterrupt:
        if not known:
            raise
        say(f"stopped; {len(known)} of {len(questions)} layouts were simulated")
    for answer in known:
        if answer.reason:
            say(f"{answer.question.strategy.name}: not simulated: {answer.reason}")
    made = [layout_of(answer, cluster, memory) for answer in known if answer.ranks]
    if not made:
        raise PlanError(known[0].reason if known else "no layout was simulated")
    return ordered([layout.answer for layout in made], cluster, memory)


def _need_torch(what: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise FixableError(f"{what} needs torch; run `make torch` once, and call .venv/bin/python")


def _print(lines: list[str], layouts: Sequence[Layout], asked: argparse.Namespace) -> int:
    """Print an answer, and return the exit code: whether any of its layouts fits."""
    if asked.tokens:
        fitting = [layout for layout in layouts if layout.verdict == "fits"]
        fastest = min(fitting or layouts, key=lambda layout: layout.bounds.at_least)
        lines.append(f"{'how long:':<19}{duration(fastest, asked.tokens)}")
    if asked.json:
        lines = [json.dumps([layout.document() for layout in layouts], indent=1)]
    print("\n".join(lines))
    return 0 if any(layout.verdict == "fits" for layout in layouts) else 1


def _table(layouts: Sequence[Layout], most: int) -> list[str]:
    left = len(layouts) - most
    more = [f"and {left} more layouts; --json has them all"] * (left > 0)
    return [*table_lines(layouts[:most]), *more]


def _title(
    question: Question, asked: argparse.Namespace, memory: float, *, is_open: bool = False
) -> str:
    training, gpu, (nodes, each) = question.training, gpu_of(asked.gpu), asked.devices
    split = f" ({nodes} node{'s' * (nodes > 1)} of {each})" * (nodes > 1 or each > PER_NODE)
    mesh = f"{nodes * each} devices{split}"
    devices = "how many devices" if is_open else "one device" if nodes * each == 1 else mesh
    kind = f" ({gpu.title})"
    if asked.memory:
        rates = f"rates of {gpu.title}" * (asked.flops is None or asked.links is None)
        notes = "; ".join(filter(None, (asked.memory[1], rates)))
        kind = f" ({notes})" * bool(notes)
    tokens = f"{training.global_batch * training.sequence:,} tokens"
    batch = "one microbatch for each device" if is_open else f"{training.global_batch} ({tokens})"
    if not asked.global_batch:
        batch += ", assumed: name --global-batch"
    is_least = not asked.strategies and training.checkpointing != "all"
    recomputed = f"checkpointing {training.checkpointing}" + ", or more" * is_least
    precision = training.precision + " without fp32 copies" * (training.precision == "bf16")
    trained = f", LoRA of rank {training.adapter_rank} on weights of {training.frozen_bits} bits"
    return (
        f"{question.model.name}{_parameters(question.model)}, on {devices} of "
        f"{memory / GIB:.4g} GiB{kind}, sequence {training.sequence}, microbatch "
        f"{training.microbatch}, {precision}{trained * (training.adapter_rank > 0)}, "
        f"{training.optimizer}, {recomputed}, global batch {batch}"
    )


def _parameters(model: PlannedModel) -> str:
    """The number of parameters, and of active ones where they are fewer; "" for an own model."""
    if model.architecture is None:
        return ""
    total, active = model.architecture.num_parameters, model.architecture.active_parameters
    return f", {_short(total)} parameters" + f" ({_short(active)} active)" * (active < total)


def _short(number: int) -> str:
    return f"{number / 1e9:.1f} B" if number >= 1e9 else f"{number / 1e6:.1f} M"


# --- committed plans


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
    """Compute a published comparison again, and say whether the committed one holds."""
    comparison = COMPARISONS[name]
    runs = comparison.runs()
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
