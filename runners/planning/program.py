"""A program that trains a planned model in the layout of its plan, from `program_template.py`.

In: a question, and what was simulated. Out: Python source. The template is a program itself, which
asks constants such as `SHARDING` what to do. Here the plan decides them: of each `if` that they
decide the branch that is taken stays, and then the functions, classes and imports that something
still names. No torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from runners.planning.law_of_time import Cluster
from runners.planning.question import Model, PlanError, Question, Strategy, Training
from runners.planning.recommendation import strategies
from runners.planning.table import GIB, Layout

TEMPLATE = Path(__file__).with_name("program_template.py")
_CONSTANTS = (
    "sharding", "has_bucket_views", "schedule", "precision", "checkpointing", "optimizer",
    "positions", "activation", "norm", "has_bias", "has_tied_embeddings", "has_query_key_norm",
)  # fmt: skip


def program_of(
    question: Question, cluster: Cluster, path: Path, plan: str, planned_bytes: int = 0
) -> str:
    """The program of a layout.

    Args:
        question: model, training and strategy.
        cluster: nodes and devices, for the line that starts it.
        path: where the program will be.
        plan: what it needs and how long it takes, for its first lines.
        planned_bytes: that a rank needs.

    Raises:
        PlanError: no program is written for such a plan.
    """
    check(question)
    fields = _fields(question)
    source = specialised(TEMPLATE.read_text(encoding="utf-8"), _kinds(fields))
    source = _assigned(source, "PLAN", f"Plan({_sizes(fields, source)})")
    source = _assigned(source, "PLANNED_GIB", f"{planned_bytes / GIB:.1f}")
    docstring = ast.get_docstring(ast.parse(source), clean=False) or ""
    words = {**_words(question, cluster, path.name), "plan": plan}
    return source.replace(docstring, docstring.format_map(words), 1)


def plan_of(layout: Layout) -> str:
    """What a simulated layout needs, and how long a step takes: two lines of the program."""
    law, training = layout.bounds, layout.answer.question.training
    return (
        f"The plan: {layout.needed_bytes / GIB:.1f} GiB on each device, and for a step of "
        f"{training.global_batch * training.sequence:,} tokens\nbetween {law.at_least:.3g} and "
        f"{law.at_most:.3g} s, by {law.decides}."
    )


def covered(model: Model, training: Training, cluster: Cluster) -> list[Strategy]:
    """Strategies that have a program, with torch's own sequence parallelism."""
    tried = strategies(cluster, tensor="tp-sp-keep")
    asked = (Question(model=model, training=training, strategy=one) for one in tried)
    return [one.strategy for one in asked if _obstacle(one) is None]


def check(question: Question) -> None:
    """Refuse a plan that the template does not cover.

    Raises:
        PlanError: says what, and what to plan instead.
    """
    if why := _obstacle(question):
        raise PlanError(f"no program for {question.strategy.name}: {why}")


def _obstacle(question: Question) -> str | None:
    """What of a plan the template does not cover."""
    strategy, training, shape = question.strategy, question.training, question.model.architecture
    if shape is None:
        return "a program is written for a preset or --hf alone"
    is_plain = strategy.sharding == "none" and strategy.data > 1
    is_pipelined = strategy.pipeline > 1
    obstacles = {
        "torch has no 8-bit Adam; plan --optimizer adam": training.optimizer == "adam8bit",
        "plan --precision bf16-mixed": training.precision == "bf16",
        "leave out --loss-chunks": training.loss_chunks > 1,
        "heads have to make up the hidden size": shape.head_dim > 0,
        "plan --checkpointing all or none": training.checkpointing == "selective",
        "name zero1 in place of ddp": is_plain and strategy.data < strategy.num_devices,
        "torch has no expert parallelism of its own; leave out ep": strategy.expert > 1,
        "torch divides a sequence with kernels of CUDA alone": strategy.context > 1,
        "name tp-sp-keep, not tp": strategy.tensor > 1 and not strategy.has_sequence_parallel,
        "name zero1, not fsdp": is_pipelined and strategy.sharding.startswith("fsdp"),
        "both ends of a pipeline would share the embedding": is_pipelined
        and shape.has_tied_embeddings,
    }
    return next((why for why, is_so in obstacles.items() if is_so), None)


def _fields(question: Question) -> dict[str, Any]:
    """All that is known of a training, a strategy and a model, by the names of fields."""
    parts = (question.training, question.strategy, question.model.architecture)
    return {name: value for one in parts if one for name, value in one.model_dump().items()}


def _kinds(fields: Mapping[str, Any]) -> dict[str, object]:
    """The constants of the template that branches depend on: fields, and what follows from them."""
    return {name.upper(): fields[name] for name in _CONSTANTS} | {
        "IS_DDP": fields["sharding"] == "none" and fields["data"] > 1,
        "IS_HSDP": fields["replicas"] > 1,
        "RESHARDS_PARTLY": fields["reshards_to"] > 0,
        "HAS_TENSOR": fields["tensor"] > 1,
        "HAS_EXPERTS": fields["num_experts"] > 1,
    }


def _sizes(fields: Mapping[str, Any], source: str) -> str:
    """Arguments for the fields of the program's `Plan`, which have the names of ours."""
    classes = [one for one in ast.parse(source).body if isinstance(one, ast.ClassDef)]
    (plan,) = (one for one in classes if one.name == "Plan")
    names = (
        name for one in plan.body if isinstance(one, ast.AnnAssign) and (name := _defined(one))
    )
    return "".join(f"\n    {name}={fields[name]:_}," for name in names) + "\n"


def _words(question: Question, cluster: Cluster, file: str) -> dict[str, object]:
    """What the first lines of the program say."""
    strategy, per_node = question.strategy, cluster.per_node
    launch = f"torchrun --nproc-per-node {per_node} {file} --tokens FILE"
    if cluster.nodes > 1:
        launch = (
            f"torchrun --nnodes {cluster.nodes} --nproc-per-node {per_node} \\\n"
            f"        --rdzv-backend c10d --rdzv-endpoint HOST:29500 {file} --tokens FILE"
        )
    axes = sum(size > 1 for size in (strategy.data, strategy.tensor, strategy.pipeline))
    note = "The layout was simulated. The program was never run on GPUs, but made small on CPUs."
    if strategy.has_sequence_parallel and not strategy.keeps_gathered:
        note += (
            "\nTorch keeps for backward what this plan gathers again, so that it needs more memory:"
            "\nplan tp-sp-keep in place of tp-sp."
        )
    return {
        "model": question.model.name,
        "devices": f"{cluster.nodes} × {per_node} devices",
        "layout": strategy.name,
        "launch": launch,
        "ranks": min(strategy.num_devices, max(4, 2**axes)),
        "file": file,
        "note": note,
    }


# --- the template, decided


def specialised(source: str, known: Mapping[str, object]) -> str:
    """The source for known values of its constants.

    Args:
        source: a module; an `if` is decided where its test names nothing but known constants.
        known: the value of each constant.
    """
    while edits := list(_decided(source, known)):
        source = _edited(source, edits)
    for name, value in known.items():
        source = _assigned(source, name, repr(value).replace("'", '"'))
    while edits := list(_unused(source)):
        source = _edited(source, edits)
    return re.sub(r"\n{4,}", "\n\n\n", source)


Edit = tuple[int, int, list[str]]  # the first line, the line after the last, what replaces them


def _edited(source: str, edits: list[Edit]) -> str:
    lines = source.splitlines()
    for first, after, kept in sorted(edits, reverse=True):
        lines[first:after] = kept
    return "\n".join(lines) + "\n"


def _decided(source: str, known: Mapping[str, object]) -> Iterator[Edit]:
    """Every `if` that is decided and in no other such: its branch in place of it."""
    lines, after = source.splitlines(), 0
    blocks = (getattr(n, k, ()) for n in ast.walk(ast.parse(source)) for k in ("body", "orelse"))
    found = [
        (one.lineno, one, block[-1])
        for block in blocks
        if isinstance(block, list)
        for one in block
        if isinstance(one, ast.If) and _names(one.test) <= set(known)
    ]
    for first, one, last in sorted(found, key=lambda each: each[0]):
        if first <= after:
            continue
        test = compile(ast.Expression(one.test), "<template>", "eval")
        taken = one.body if eval(test, {}, dict(known)) else one.orelse
        # What follows a `return` that is always reached is never executed.
        ends = bool(taken) and isinstance(taken[-1], (ast.Return, ast.Raise))
        after = (last if ends else one).end_lineno or 0
        # From the first line of the branch, so that a comment above its first statement stays.
        start = one.test.end_lineno or 0
        if taken and taken is one.orelse:
            start = lines.index(f"{' ' * one.col_offset}else:", one.body[-1].end_lineno or 0) + 1
        kept = [line[4:] for line in lines[start : taken[-1].end_lineno]] if taken else []
        yield first - 1, after, kept


def _unused(source: str) -> Iterator[Edit]:
    """Every function, class, method, constant and import that nothing names."""
    tree, lines = ast.parse(source), source.splitlines()
    used = _names(tree)
    classes = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name in used]
    for one in chain(tree.body, *(each.body for each in classes)):
        kept: list[str] = []
        if isinstance(one, (ast.Import, ast.ImportFrom)):
            bound = ((each.asname or each.name.partition(".")[0], each.name) for each in one.names)
            names = [name for own, name in bound if own in used]
            if len(names) == len(one.names) or one.names[0].name == "annotations":
                continue
            if names and isinstance(one, ast.ImportFrom):
                kept = [f"from {one.module} import {', '.join(names)}"]
        elif (name := _defined(one)) is None or name in used:
            continue
        decorators = getattr(one, "decorator_list", [])
        first = min([one.lineno, *(each.lineno for each in decorators)]) - 1
        after = one.end_lineno or 0
        while not kept and not lines[after] and not lines[first - 1]:
            first -= 1  # blank lines above; those below stay
        yield first, after, kept


def _defined(one: ast.stmt) -> str | None:
    """What a statement defines and something has to name."""
    if isinstance(one, ast.FunctionDef) and not one.name.startswith("__"):
        return None if one.name == "forward" else one.name
    if isinstance(one, ast.ClassDef):
        return one.name
    if isinstance(one, (ast.Assign, ast.AnnAssign)):
        target = one.target if isinstance(one, ast.AnnAssign) else one.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def _assigned(source: str, name: str, value: str) -> str:
    """The source with another value for a constant of the module, if it has that constant."""
    return re.sub(rf"^{name} = .*?(?=  #|$)", lambda _: f"{name} = {value}", source, flags=re.M)


def _names(tree: ast.AST) -> set[str]:
    """Names that are read, as variables or as attributes."""
    read = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            read.add(node.id)
        elif isinstance(node, ast.Attribute):
            read.add(node.attr)
    return read
