"""A program that trains a planned model in the layout of its plan.

In: a question, and what was simulated. Out: Python source: `program_template.py`, which trains in
any layout, with its first lines and the values of its `Plan` filled in. No torch.
"""

import re
from pathlib import Path

from proofbook.runners.planner.answers.answer import GIB, Layout
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.question import (
    PlanError,
    PlannedModel,
    Question,
    Strategy,
    TrainingSettings,
    strategy_of,
)
from proofbook.runners.planner.answers.search import strategies

TEMPLATE = Path(__file__).with_name("program_template.py")
_FIELD = re.compile(r"^    (\w+): (?:int|str|bool|float) = ", re.MULTILINE)  # of its `Plan`


def program_of(
    question: Question, cluster: Cluster, path: Path, summary: str, planned_bytes: int = 0
) -> str:
    """The Python source that trains in a question's layout: the template filled in; or PlanError.

    `summary` stands in its first lines.
    """
    check(question)
    docstring, rest = TEMPLATE.read_text(encoding="utf-8").split("\n\nfrom __future__", 1)
    first_lines = docstring.format_map({**_words(question, cluster, path.name), "plan": summary})
    filled = rest.replace("PLAN = Plan()", _plan(question, planned_bytes, _FIELD.findall(rest)), 1)
    return f"{first_lines}\n\nfrom __future__{filled}"


def summary_of(layout: Layout) -> str:
    """Two lines in a string for a program's head: GiB a device, tokens, least seconds a step."""
    training = layout.answer.question.training
    return (
        f"The plan: {layout.needed_bytes / GIB:.1f} GiB on each device; a step of "
        f"{training.global_batch * training.sequence:,} tokens takes\nat least "
        f"{layout.bounds.at_least:.3g} s at the highest rates."
    )


def command_of(layout: Layout, name: str) -> str:
    """The command that writes the program of a layout of the model `name`, or why there is none."""
    question, cluster = layout.answer.question, layout.cluster
    own = question.strategy.name.replace("tp-sp", "tp-sp-keep")  # which torch has
    strategy = strategy_of(own, question.strategy.num_devices)
    if why := _obstacle(question.model_copy(update={"strategy": strategy})):
        return f"no program: {why}"
    usual, training = TrainingSettings(sequence=1), question.training
    flags = {
        "devices": f"{cluster.nodes}x{cluster.per_node}" if cluster.nodes > 1 else cluster.per_node,
        "strategies": own,
        "sequence": training.sequence,
        "microbatch": training.microbatch,
        "global-batch": training.global_batch,
    }
    for field in ("precision", "optimizer", "checkpointing"):
        if (value := getattr(training, field)) != getattr(usual, field):
            flags[field] = value
    words = " ".join(f"--{flag} {value}" for flag, value in flags.items())
    return f"python -m runners plan program {name} train.py {words}"


def strategies_with_program(
    model: PlannedModel, training: TrainingSettings, cluster: Cluster
) -> list[Strategy]:
    """The strategies of a search, with `tp-sp-keep`, that the program's template covers."""
    tried = strategies(cluster, tensor="tp-sp-keep")
    asked = (Question(model=model, training=training, strategy=strategy) for strategy in tried)
    return [question.strategy for question in asked if _obstacle(question) is None]


def check(question: Question) -> None:
    """Refuse a plan that the template does not cover, by a PlanError that says why."""
    if why := _obstacle(question):
        raise PlanError(f"no program: {why}")


def _obstacle(question: Question) -> str | None:
    """The first reason for which the template does not cover a plan, or None."""
    strategy, training, shape = question.strategy, question.training, question.model.architecture
    implementation = question.implementation
    if shape is None:
        return (
            "a program is written for presets, and for files of families that plans read themselves"
        )
    trained = {*_FIELD.findall(TEMPLATE.read_text(encoding="utf-8")), "head_dim"}
    if shape.activation not in ("gelu", "gelu_tanh", "swiglu"):
        trained.remove("activation")
    is_plain = strategy.sharding == "none" and strategy.data > 1
    is_pipelined, divides = strategy.pipeline > 1, strategy.pipeline * strategy.tensor > 1
    obstacles = {
        "torch has no 8-bit Adam; plan --optimizer adam": training.optimizer == "adam8bit",
        "plan --precision bf16-mixed": training.precision == "bf16",
        "leave out --loss-chunks": training.loss_chunks > 1,
        "torch has no fused loss; leave out --loss": implementation.has_loss_in_place,
        "leave out --gradients": implementation.has_wide_gradients,
        "leave out --reduce": implementation.reduces_each is not None,
        f"the program does not train with the {shape.other_values} of the file": shape.other_values,
        **{
            f"{name} is {value!r}, with which it does not train": name not in trained
            for name, value in shape.model_dump().items()  # without rare fields at their default
        },
        "name zero1 in place of ddp": is_plain and strategy.data < strategy.num_devices,
        "torch has no expert parallelism of its own; leave out ep": strategy.expert > 1,
        "torch divides a sequence with kernels of CUDA alone": strategy.context > 1,
        "name tp-sp-keep": strategy.tensor > 1 and not strategy.keeps_gathered,
        "name zero1, not fsdp": is_pipelined and strategy.sharding.startswith("fsdp"),
        "the logits are the embedding, which neither tp nor a pipeline divides": divides
        and shape.has_tied_embeddings,
    }
    return next((why for why, is_so in obstacles.items() if is_so), None)


def _plan(question: Question, planned_bytes: int, names: list[str]) -> str:
    """The text of the program's plan, whose fields have the names of ours."""
    shape = question.model.architecture
    assert shape is not None  # else `check` has refused it
    parts = (question.training, question.strategy, shape)
    known = {name: getattr(record, name) for record in parts for name in type(record).model_fields}
    known |= {"head_size": shape.head_size, "needed_gib": round(planned_bytes / GIB, 1)}
    values = (f"    {name}={known[name]!r},".replace("'", '"') for name in names)
    return "\n".join(["PLAN = Plan(", *values, ")"])


def _words(question: Question, cluster: Cluster, file: str) -> dict[str, object]:
    """The values that the first lines of the program print."""
    strategy = question.strategy
    cluster = cluster.with_devices(strategy.num_devices)  # `single` leaves devices unused
    per_node = cluster.per_node
    launch = f"torchrun --nproc-per-node {per_node} {file} --tokens FILE"
    if cluster.nodes > 1:
        launch = (
            f"torchrun --nnodes {cluster.nodes} --nproc-per-node {per_node} \\\n"
            f"        --rdzv-backend c10d --rdzv-endpoint HOST:29500 {file} --tokens FILE"
        )
    if question.implementation.has_expandable_segments:
        launch = f"PYTORCH_ALLOC_CONF=expandable_segments:True {launch}"
    axes = sum(size > 1 for size in (strategy.data, strategy.tensor, strategy.pipeline))
    ranks = min(strategy.num_devices, max(4, 2**axes))
    return {
        "model": question.model.name,
        "devices": f"{cluster.nodes} × {per_node} devices",
        "layout": strategy.name,
        "launch": launch,
        "ranks": 2 ** (ranks.bit_length() - 1),  # `made_small` doubles axes
        "file": file,
    }
