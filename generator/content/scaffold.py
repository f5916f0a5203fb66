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

import yaml

from generator.content.book import Book
from runners.traces.records import Run

TEMPLATE = Path("runners/experiments/_template.py")
_SCHEMA = "# yaml-language-server: $schema="
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_PROGRAM = '''\
"""The smallest program that shows what this topic is about.

torchrun --nproc-per-node 1 {file}
"""

parts = [1, 2]
total = sum(parts)
print(total)
'''
_CLAIMS = """\
regime: {{dtype: float32, optimizer: SGD, fixed: the batch}}
claims:
  - id: {hyphened}-model-bytes
    for: [{name}.narrow, {name}.wide]
    says: The layer holds the tensor bytes that its width says.
    predicted: run.settings.model_bytes
    observed: run.ranks[0].memory.largest.parameters_bytes
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
    law = _CLAIMS.format(name=name, hyphened=name.replace("_", "-"))
    claims.write_text(f"{_SCHEMA}../../.cache/schemas/claims.json\n{law}", encoding="utf-8")
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
    run = _run_to_lean_on(book, experiment)
    recorded = book.run(run)
    claim = next(iter([*(one for one in laws if run in laws[one]), *laws]), None)
    if recorded is None or claim is None or not book.misconceptions:
        raise CannotScaffoldError(
            f"a lesson leans on a measured run, a claim and a misconception; "
            f"measure one: python -m runners run {experiment or 'ddp'}"
        )
    program = folder / "code" / f"{name.replace('-', '_')}_smallest.py"
    program.parent.mkdir(parents=True)
    program.write_text(_PROGRAM.format(file=program.name), encoding="utf-8")
    written = _topic(book, name, claim) | _lessons(name, claim, run, recorded)
    for file, text in written.items():
        said = yaml.safe_dump(text, sort_keys=False, allow_unicode=True, width=100)
        schema = f"{_SCHEMA}../../../.cache/schemas/{file}.json\n"
        (folder / f"{file}.yml").write_text(schema + said, encoding="utf-8")
    return [*(folder / f"{file}.yml" for file in written), program]


def _topic(book: Book, name: str, claim: str) -> dict[str, object]:
    """The topic's own file, and its questions, which the claim decides."""
    items = [
        {
            "id": f"{name}-{which}",
            "stem": "What do you want to know whether the reader knows?",
            "options": [
                {
                    "text": "What the claim says",
                    "why": "Because a run showed it.",
                    "right_if": {"claim": claim},
                },
                {
                    "text": "What people believe instead",
                    "why": "Say what the run showed instead.",
                    "misconception": next(iter(book.misconceptions)),
                    "decides": claim,
                },
            ],
        }
        for which in ("first", "second", "third", "last")
    ]
    modes = {
        "learn": "What would a reader guess, and what is so?",
        "trace": "Which question does this page answer?",
        "recall": "What should a reader still know in a month?",
    }
    topic = {
        "title": name.replace("-", " ").capitalize(),
        "summary": "What this topic is about, in a sentence or two.",
        "order": 1 + max((topic.file.order for topic in book.topics), default=0),
        "modes": modes,
    }
    return {"topic": topic, "quiz": {"items": items}}


def _lessons(name: str, claim: str, run: str, recorded: Run) -> dict[str, object]:
    """Learn, Trace and Recall."""
    kind, shows = (
        ("epochs", "Loss by epoch") if recorded.epochs else ("placement", "Which rank holds what")
    )
    figure = {
        "id": "shown", "kind": kind, "title": shows, "caption": "What the figure shows.",
        "runs": [run],
    }  # fmt: skip
    title = name.replace("-", " ").capitalize()
    first, *others = (f"{name}-{which}" for which in ("first", "second", "third", "last"))
    learn = {
        "title": f"{title}, in a few minutes",
        "introduction": "What a reader will know in a few minutes, and why it pays off.",
        "guess": first,
        "seen": {
            "title": "What the runs showed",
            "text": "The guess, answered by a run.",
            "claims": [claim],
        },
        "idea": "The one idea, in a few sentences.",
        "figure": "shown",
        "program": {
            "path": f"content/topics/{name}/code/{name.replace('-', '_')}_smallest.py",
            "title": "The smallest program that shows it",
        },
        "walkthrough": [
            {"code": "total = sum(parts)", "says": "What this line does."},
            {"code": "print(total)", "says": "What this one does."},
        ],
        "output_says": "What to see in the output.",
        "checks": others,
        "takeaway": "The one sentence to take along.",
        "figures": [figure],
    }
    trace = {
        "title": f"{title}, followed",
        "introduction": "Who does what, and why a reader should care.",
        "commit": first,
        **_sections(run, recorded),
        "quiz": others,
        "key_insight": "The one sentence to remember.",
        "figures": [figure],
    }
    recall = {
        "title": f"{title}, again",
        "introduction": "The questions of this topic, each when it is due.",
        "afterword": "What to read again where an answer did not come.",
    }
    return {"learn": learn, "trace": trace, "recall": recall}


def _sections(run: str, recorded: Run) -> dict[str, object]:
    """A section for each thing that the run recorded."""
    found: dict[str, object] = {}
    said = {"title": "A name", "note": "What happens here."}
    if recorded.stages:
        rows = [{"stage": one.name, **said} for one in recorded.stages]
        found["data_flow"] = {"run": run, "introduction": "The way of the rows.", "stages": rows}
    if recorded.epochs:
        intro = "Epoch by epoch, as measured."
        found["training"] = {"introduction": intro, "figure": "shown"}
    if recorded.prediction:
        rows = [{"step": one.name, **said} for one in recorded.prediction]
        intro = "One real batch through the model."
        found["prediction"] = {"run": run, "introduction": intro, "steps": rows}
    return found


def _run_to_lean_on(book: Book, experiment: str | None) -> str:
    """The run that has recorded most, of an experiment or of all; empty where there is none."""
    runs = {
        f"{name}.{run}": sum(map(bool, (one.stages, one.epochs, one.prediction)))
        for name, shown in book.traces.items()
        if experiment in (None, name) and not shown.is_plan
        for run, one in shown.trace.runs.items()
        if one.status == "completed"
    }
    return max(runs, key=lambda name: runs[name], default="")
