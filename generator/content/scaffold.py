"""`python -m generator new topic NAME`: a topic's first files, sound but for what only you know.

What is written passes `check` where the book has a trace to lean on: the scaffold binds its pages,
Learn, Trace and Recall, to a run that exists, and says in its texts what to write instead.
"""

from __future__ import annotations

import re
from pathlib import Path

from generator.content.book import Book

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
  - id: learnt
    kind: epochs
    title: Loss and accuracy by epoch
    caption: Training and validation.
    runs: [{run}]
"""
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
data_flow:
  run: {run}
  introduction: The way of the rows.
  stages:
{stages}
training:
  run: {run}
  introduction: Epoch by epoch, as measured.
  figure: curve
prediction:
  run: {run}
  introduction: One real batch through the model.
  steps:
{steps}
quiz: [{name}-first, {name}-second, {name}-third, {name}-last]
key_insight: The one sentence to remember.
figures:
  - id: curve
    kind: epochs
    title: Loss and accuracy by epoch
    caption: Training and validation.
    runs: [{run}]
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
    """The topic cannot be started; the message says why."""


def new_topic(book: Book, content: Path, name: str, verdicts: dict[str, str]) -> list[Path]:
    """Write the first files of a topic.

    Args:
        book: the book that it joins.
        content: its content folder.
        name: the topic's id, in small letters joined by hyphens.
        verdicts: the verdict on each claim, by id; the first questions are bound to one of them.

    Returns:
        The files written.

    Raises:
        CannotScaffoldError: the name is taken or malformed, or the book has nothing to lean on.
    """
    folder = content / "topics" / name
    if not _NAME.fullmatch(name):
        raise CannotScaffoldError(f"{name!r}: small letters and digits, joined by hyphens")
    if folder.exists():
        raise CannotScaffoldError(f"{folder} exists already")
    files = _files(book, name, verdicts)
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        head = f"{SCHEMA}{Path(file).stem}.json\n" if file.endswith(".yml") else ""
        (folder / file).write_text(head + text, encoding="utf-8")
    return [folder / file for file in files]


def _files(book: Book, name: str, verdicts: dict[str, str]) -> dict[str, str]:
    run = _run_to_lean_on(book)
    if run is None or not verdicts or not book.misconceptions:
        raise CannotScaffoldError(
            "a topic leans on a run with stages, epochs and a prediction, on a claim and on a "
            "misconception; this book lacks one of them"
        )
    recorded = book.run(run)
    assert recorded is not None
    title = name.replace("-", " ").capitalize()
    order = 1 + max((topic.file.order for topic in book.topics), default=0)
    claim, verdict = next(iter(verdicts.items()))
    misconception = next(iter(book.misconceptions))
    program = f"{name.replace('-', '_')}_smallest"
    rows = "    - {{{key}: {value!r}, title: A name, note: What happens here.}}"
    stages = "\n".join(rows.format(key="stage", value=s.name) for s in recorded.stages)
    steps = "\n".join(rows.format(key="step", value=s.name) for s in recorded.prediction)
    items = "".join(
        ITEM.format(name=name, which=which, claim=claim, verdict=verdict,
                    misconception=misconception)
        for which in ("first", "second", "third", "last")
    )  # fmt: skip
    return {
        "topic.yml": TOPIC.format(title=title, order=order),
        "quiz.yml": "items:\n" + items,
        "learn.yml": LEARN.format(
            title=title, name=name, run=run, claim=claim, stem=program, file=f"{program}.py"
        ),
        f"code/{program}.py": PROGRAM.format(file=f"{program}.py"),
        "recall.yml": RECALL.format(title=title),
        "trace.yml": TRACE.format(
            title=title, name=name, run=run, experiment=run.partition(".")[0],
            stages=stages, steps=steps,
        ),
    }  # fmt: skip


def _run_to_lean_on(book: Book) -> str | None:
    for experiment, shown in book.traces.items():
        for name, run in shown.trace.runs.items():
            if run.stages and run.epochs and run.prediction:
                return f"{experiment}.{name}"
    return None
