"""`python -m generator new`: the first files of a book, an experiment or a lesson, green at once.

A book is copied from `proofbook/new_book`. An experiment is written from the template that is one
(`runners/experiments/_template.py`), with a law on its runs. A lesson is a topic with the pages
Trace and Recall, bound to what a run has recorded: its stages and epochs, where there are any. Its
texts say what to write instead.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from generator.content.book import Book
from runners.traces.digest import ROOT, own_book

PYTHON = shlex.quote(sys.orig_argv[0])  # as it was called, so that what is printed can be pasted
TEMPLATE = Path("runners/experiments/_template.py")
BOOK = Path(__file__).resolve().parents[2] / "proofbook" / "new_book"  # as it is copied
_FILES = {  # each of them as Jinja writes it
    "claims": """\
regime: {dtype: float32, optimizer: SGD, fixed: the batch}
claims:
  - id: {{ name | replace("_", "-") }}-model-bytes
    for: [{{ name }}.narrow, {{ name }}.wide]
    says: The layer holds the tensor bytes that its width says.
    predicted: run.settings.model_bytes
    observed: run.ranks[0].memory.largest.parameters_bytes
""",
    "topic": """\
title: {{ title }}
summary: What this topic is about, in a sentence or two.
order: {{ order }}
modes:
  trace: Which question does this page answer?
  recall: What should a reader still know in a month?
""",
    "quiz": """\
items:
{% for which in ("first", "second", "third") %}
  - id: {{ name }}-{{ which }}
    stem: What do you want to know whether the reader knows?
    options:
      - text: What the claim says
        why: Because a run showed it.
        right_if: {claim: {{ claim }} }
      - text: What people believe instead
        why: Say what the run showed instead.
{% if belief %}
        misconception: {{ belief }}
{% endif %}
        decides: {{ claim }}
{% endfor %}
""",
    "trace": """\
title: {{ title }}, followed
introduction: Who does what, and why a reader should care.
commit: {{ name }}-first
{% if run.stages %}
data_flow:
  run: {{ path }}
  introduction: How the samples travel.
  rows:
{% for one in run.stages %}
    - {name: {{ one.name | tojson }}, title: A name, note: What happens here.}
{% endfor %}
{% endif %}
{% if run.epochs %}
training: {introduction: "Epoch by epoch, as measured.", figure: shown}
figures:
  - id: shown
    kind: epochs
    title: Loss by epoch
    caption: What the figure shows.
    runs: [{{ path }}]
{% endif %}
checks: [{{ name }}-second, {{ name }}-third]
takeaway: The one sentence to remember.
""",
    "recall": """\
title: {{ title }}, again
introduction: "The questions of this topic, each when it is due."
afterword: What to read again where an answer did not come.
""",
}
_YAML = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
_SCHEMA = "# yaml-language-server: $schema={up}.cache/schemas/{file}.json\n"  # for editors


class CannotScaffoldError(ValueError):
    """Nothing can be started; the message says why."""


def new_book(folder: Path) -> None:
    """Write the files of a book of one's own.

    Raises:
        CannotScaffoldError: the folder holds something.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise CannotScaffoldError(f"{folder} is there already, and not empty; name another folder")
    shutil.copytree(BOOK, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "gitignore").rename(folder / ".gitignore")


def new_experiment(root: Path, content: Path, name: str) -> list[Path]:
    """Write an experiment of two runs, and a law that both obey.

    Raises:
        CannotScaffoldError: the name is taken or malformed.
    """
    if not content.is_dir():
        raise CannotScaffoldError(f"{content}: no such folder; `new book DIR` makes a book")
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise CannotScaffoldError(f"{name!r}: small letters, digits and underscores")
    program = (ROOT / TEMPLATE).read_text(encoding="utf-8").replace("widths", name)
    law = _SCHEMA.format(up="../../", file="claims") + _filled("claims", name=name)
    path, claims = root / TEMPLATE.with_stem(name), content / "claims" / f"{name}.yml"
    if own_book():
        path = root / "experiments" / f"{name}.py"
        program = (BOOK / "experiments/sorting.py").read_text(encoding="utf-8")
        law = (BOOK / "content/claims/sorting.yml").read_text(encoding="utf-8")
        law = law.replace("sorting-", f"{name.replace('_', '-')}-").replace("sorting.", f"{name}.")
    return _written({path: program, claims: law})


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
    if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise CannotScaffoldError(f"{name!r}: small letters and digits, joined by hyphens")
    path = _run_to_lean_on(book, experiment)
    if not path or not laws:
        raise CannotScaffoldError(
            f"a lesson leans on a measured run and a law; "
            f"measure one: {PYTHON} -m runners run {experiment or 'ddp'}"
        )
    source = path.partition(".")[0] + "."
    own = [name for name, runs in laws.items() if any(run.startswith(source) for run in runs)]
    claim = next(iter([*(name for name in own if path in laws[name]), *own, *laws]))
    beliefs = (name for name, one in book.misconceptions.items() if one.refuted_by in own)
    bound = {
        "name": name,
        "title": name.replace("-", " ").capitalize(),
        "order": 1 + max((topic.file.order for topic in book.topics), default=0),
        "belief": next(beliefs, None),  # never that of another topic
        "claim": claim,
        "path": path,
        "run": book.run(path),
    }
    folder = content / "topics" / name
    return _written({
        folder / f"{file}.yml": _SCHEMA.format(up="../../../", file=file) + _filled(file, **bound)
        for file in ("topic", "quiz", "trace", "recall")
    })  # fmt: skip


def _filled(file: str, **values: object) -> str:
    return _YAML.from_string(_FILES[file]).render(values)


def _written(files: Mapping[Path, str]) -> list[Path]:
    """Write files where there are none yet."""
    for path in files:
        if path.exists():
            raise CannotScaffoldError(f"{path} exists already")
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)


def _run_to_lean_on(book: Book, experiment: str | None) -> str:
    """The run that has recorded most, of an experiment or of all; empty where there is none."""
    runs = {
        f"{name}.{run}": bool(one.stages) + bool(one.epochs)
        for name, shown in book.traces.items()
        if experiment in (None, name) and not shown.is_of_planner
        for run, one in shown.trace.runs.items()
        if one.status == "completed"
    }
    return max(runs, key=lambda name: runs[name], default="")
