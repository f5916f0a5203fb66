"""`python -m generator new`: the first files of an experiment or a lesson, green at once.

An experiment is written from the template that is one (`runners/experiments/_template.py`), with a
law on its runs. A lesson is a topic with the pages Learn, Trace and Recall, bound to what a run has
recorded: its stages, epochs and prediction, where there are any. Its texts say what to write
instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from generator.content.book import Book
from runners.traces.records import Run

TEMPLATE = Path("runners/experiments/_template.py")
SCHEMA = "# yaml-language-server: $schema=../../../.cache/schemas/"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

TOPIC = """\
title: {title}
summary: What this topic is about, in a sentence or two.
order: {order}
modes:
  learn: What would a reader guess, and what is so?
  trace: Which question does this page answer?
  recall: What should a reader still know in a month?
"""
LEARN = """\
title: {title}, in a few minutes
introduction: What a reader will know in a few minutes, and why it pays off.
guess: {name}-first
seen:
  title: What the runs showed
  text: The guess, answered by a run.
  claims: [{claim}]
idea: The one idea, in a few sentences.
figure: learnt
program:
  path: content/topics/{name}/code/{file}
  # run: listings.{stem}     once `python -m runners run listings --full` has executed it
  title: The smallest program that shows it
walkthrough:
  - code: total = sum(parts)
    says: What this line does.
  - code: print(total)
    says: What this one does.
output_says: What to see in the output.
checks: [{name}-second, {name}-third, {name}-last]
takeaway: The one sentence to take along.
figures:
{figure}"""
PROGRAM = '''\
"""The smallest program that shows what this topic is about.

torchrun --nproc-per-node 1 {file}
"""

parts = [1, 2]
total = sum(parts)
print(total)
'''
RECALL = """\
title: {title}, again
introduction: The questions of this topic, each when it is due.
afterword: What to read again where an answer did not come.
"""
TRACE = """\
# python -m runners show {experiment}   lists every value with the expression to paste here.
title: {title}, followed
introduction: Who does what, and why a reader should care.
{sections}quiz: [{name}-first, {name}-second, {name}-third, {name}-last]
key_insight: The one sentence to remember.
figures:
{figure}"""
STAGES = """\
data_flow:
  run: {run}
  introduction: The way of the rows.
  stages:
"""
EPOCHS = """\
training:
  run: {run}
  introduction: Epoch by epoch, as measured.
  figure: curve
"""
STEPS = """\
prediction:
  run: {run}
  introduction: One real batch through the model.
  steps:
"""
FIGURE = """\
  - id: {id}
    kind: {kind}
    title: {title}
    caption: What the figure shows.
    runs: [{run}]
"""
CLAIMS = """\
{schema}
regime: {{dtype: float32, optimizer: SGD, fixed: the batch}}
claims:
  - id: {hyphened}-model-bytes
    for: [{name}.narrow, {name}.wide]
    says: The layer holds the tensor bytes that its width says.
    predicted: run.settings.model_bytes
    observed: run.ranks[0].memory.largest.parameters_bytes
"""
ITEM = """\
  - id: {name}-{which}
    stem: What do you want to know whether the reader knows?
    options:
      - text: What the claim says
        why: Because a run showed it.
        right_if: {{claim: {claim}, verdict: {verdict}}}
      - text: What people believe instead
        why: Say what the run showed instead.
        misconception: {misconception}
        decides: {claim}
"""


class CannotScaffoldError(ValueError):
    """Nothing can be started; the message says why."""


def new_experiment(root: Path, content: Path, name: str) -> list[Path]:
    """Write an experiment of two runs, and a law that both obey.

    Raises:
        CannotScaffoldError: the name is taken or malformed.
    """
    if not name.isidentifier() or not name.islower() or name.startswith("_"):
        raise CannotScaffoldError(
            f"{name!r}: small letters, digits and underscores, as in tiny_mlp"
        )
    path, claims = root / TEMPLATE.with_stem(name), content / "claims" / f"{name}.yml"
    for taken in (path, claims):
        if taken.exists():
            raise CannotScaffoldError(f"{taken} exists already")
    text = (root / TEMPLATE).read_text(encoding="utf-8")
    path.write_text(text.replace("widths", name), encoding="utf-8")
    schema = f"{SCHEMA.replace('../../../', '../../')}claims.json"
    law = CLAIMS.format(schema=schema, name=name, hyphened=name.replace("_", "-"))
    claims.write_text(law, encoding="utf-8")
    return [path, claims]


def new_lesson(
    book: Book, content: Path, name: str, laws: Mapping[str, Sequence[str]], experiment: str | None
) -> list[Path]:
    """Write the first files of a topic.

    Args:
        book: the book that it joins.
        content: its content folder.
        name: the topic's id, in small letters joined by hyphens.
        laws: those that hold, by id, each with its runs; the first questions are bound to one.
        experiment: whose runs the pages show; None is one that recorded stages and epochs.

    Returns:
        The files written.

    Raises:
        CannotScaffoldError: the name is taken or malformed, or nothing was measured to lean on.
    """
    folder = content / "topics" / name
    if not _NAME.fullmatch(name):
        raise CannotScaffoldError(f"{name!r}: small letters and digits, joined by hyphens")
    if folder.exists():
        raise CannotScaffoldError(f"{folder} exists already")
    files = _files(book, name, laws, experiment)
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        head = f"{SCHEMA}{Path(file).stem}.json\n" if file.endswith(".yml") else ""
        (folder / file).write_text(head + text, encoding="utf-8")
    return [folder / file for file in files]


def _files(
    book: Book, name: str, laws: Mapping[str, Sequence[str]], experiment: str | None
) -> dict[str, str]:
    run = _run_to_lean_on(book, experiment)
    recorded = book.run(run) if run else None
    own = [one for one, runs in laws.items() if run in runs]
    claim = next(iter([*own, *laws]), None)
    if run is None or recorded is None or claim is None or not book.misconceptions:
        raise CannotScaffoldError(
            f"a lesson leans on a measured run, a claim and a misconception; "
            f"measure one: python -m runners run {experiment or 'ddp'}"
        )
    title = name.replace("-", " ").capitalize()
    order = 1 + max((topic.file.order for topic in book.topics), default=0)
    program = f"{name.replace('-', '_')}_smallest"
    items = "".join(
        ITEM.format(name=name, which=which, claim=claim, verdict="holds",
                    misconception=next(iter(book.misconceptions)))
        for which in ("first", "second", "third", "last")
    )  # fmt: skip
    return {
        "topic.yml": TOPIC.format(title=title, order=order),
        "quiz.yml": "items:\n" + items,
        "learn.yml": LEARN.format(
            title=title, name=name, claim=claim, stem=program, file=f"{program}.py",
            figure=_figure("learnt", run, recorded),
        ),
        f"code/{program}.py": PROGRAM.format(file=f"{program}.py"),
        "recall.yml": RECALL.format(title=title),
        "trace.yml": TRACE.format(
            title=title, name=name, experiment=run.partition(".")[0],
            sections=_sections(run, recorded), figure=_figure("curve", run, recorded),
        ),
    }  # fmt: skip


def _sections(run: str, recorded: Run) -> str:
    """A section for each thing that the run recorded."""
    row = "    - {{{key}: {value!r}, title: A name, note: What happens here.}}\n"
    stages = "".join(row.format(key="stage", value=one.name) for one in recorded.stages)
    steps = "".join(row.format(key="step", value=one.name) for one in recorded.prediction)
    return "".join([
        STAGES.format(run=run) + stages if stages else "",
        EPOCHS.format(run=run) if recorded.epochs else "",
        STEPS.format(run=run) + steps if steps else "",
    ])  # fmt: skip


def _figure(name: str, run: str, recorded: Run) -> str:
    kind, title = (
        ("epochs", "Loss by epoch") if recorded.epochs else ("memory_bars", "What each rank holds")
    )
    return FIGURE.format(id=name, kind=kind, title=title, run=run)


def _run_to_lean_on(book: Book, experiment: str | None) -> str | None:
    """The run that has recorded most, of an experiment or of all."""
    runs = {
        f"{name}.{run}": sum(map(bool, (one.stages, one.epochs, one.prediction)))
        for name, shown in book.traces.items()
        if experiment in (None, name) and not shown.is_plan
        for run, one in shown.trace.runs.items()
        if one.status == "completed"
    }
    return max(runs, key=lambda name: runs[name], default=None)
