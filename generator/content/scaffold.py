"""`python -m generator new`: the first files of a book, an experiment or a lesson, green at once.

A book is copied from `proofbook/new_book`, and takes the title. An experiment is written from a
template that is one, with or without ranks, with a law on its runs. A lesson is a topic with the
page Recall and, where its run has recorded stages or epochs, Trace, else Worked. `TODO` begins each
text that is to be written; `generator check` says where one still stands.
"""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined

import proofbook
from proofbook.generator.content.book import Book
from proofbook.generator.content.prose import faults
from proofbook.runners.system.book import ROOT, experiment_files, experiments_in, own_book, program
from proofbook.runners.system.errors import unknown

PYTHON = shlex.quote(sys.orig_argv[0])  # as it was called, so that what is printed can be pasted
TEMPLATE = Path("runners/experiments/_template.py")
PLAIN_TEMPLATE = ROOT / "runners/plain/_template.py"  # in a book of one's own
TODO = "TODO"
BOOK = Path(proofbook.__file__).parent / "new_book"  # as it is copied
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
    "plain claims": """\
claims:
  - id: {{ name | replace("_", "-") }}-counted
    for: [{{ name }}.few, {{ name }}.many]
    says: "TODO: what holds in each run. The loop runs as often as its settings say."
    predicted: run.settings.num_passes
    observed: run.measures.num_counted
""",
    "topic": """\
title: {{ title }}
summary: "TODO: what this topic is about, in a sentence or two."
order: {{ order }}
modes:
  {{ mode }}: "TODO: which question does this page answer?"
  recall: "TODO: what should a reader still know in a month?"
""",
    "quiz": """\
items:
{% for which in ("first", "second", "third") %}
  - id: {{ name }}-{{ which }}
    stem: "TODO: what do you ask?"
    asks: {{ asks | tojson }}
    options:
      - text: "TODO: what the claim says"
        why: "TODO: how a run showed it."
        right_if: {claim: {{ claim }} }
      - text: "TODO: what people believe instead"
        why: "TODO: what the run showed instead."
{% if belief %}
        misconception: {{ belief }}
{% endif %}
        decides: {{ claim }}
{% endfor %}
""",
    "trace": """\
title: {{ title }}, followed
introduction: "TODO: who does what, and why a reader should care."
commit: {{ name }}-first
{% if run.stages %}
data_flow:
  run: {{ path }}
  introduction: "TODO: how the samples travel."
  rows:
{% for one in run.stages %}
    - {name: {{ one.name | tojson }}, title: "TODO: a name", note: "TODO: what happens here."}
{% endfor %}
{% endif %}
{% if run.epochs %}
training: {introduction: "Epoch by epoch, as measured.", figure: shown}
figures:
  - id: shown
    kind: epochs
    title: Loss by epoch
    caption: "TODO: what the figure shows."
    runs: [{{ path }}]
{% endif %}
checks: [{{ name }}-second, {{ name }}-third]
takeaway: "TODO: the one sentence to remember."
""",
    "worked": """\
title: {{ title }}, step by step
introduction: "TODO: the question of this page, and why a reader should care."
steps:
  - title: "TODO: what follows from the settings"
    text: "TODO: how. The run `{{ path }}` shows it."
    claims: [{{ claim }}]
  - title: "TODO: what a reader answers first"
    commit: {{ name }}-first
    text: "TODO: the answer, with numbers of the run."
    claims: [{{ claim }}]
checks: [{{ name }}-second, {{ name }}-third]
takeaway: "TODO: the one sentence to remember."
""",
    "recall": """\
title: {{ title }}, again
introduction: The questions of this topic, each when it is due.
afterword: "TODO: what to read again where an answer did not come."
""",
}
Law = tuple[Sequence[str], Sequence[str]]  # its runs, and the names of the values that it reads
_YAML = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
_SCHEMA = "# yaml-language-server: $schema={up}.cache/schemas/{file}.json\n"  # for editors


class CannotScaffoldError(ValueError):
    """Nothing can be started; the message says why."""


def new_book(folder: Path, title: str | None) -> None:
    """Copy the example book to a folder, and set its title; CannotScaffoldError unless it is empty.

    The title is by default the folder's name, or the example's where that is no title.
    """
    called = re.sub(r"[-_\s]+", " ", folder.resolve().name if title is None else title).strip()
    called = called[:1].upper() + called[1:] if title is None else called
    wrong = [fault.message for fault in faults(called, "line")] if called else ["it is empty"]
    if wrong and title is not None:
        raise CannotScaffoldError(f"--title {title!r}: {wrong[0]}")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise CannotScaffoldError(f"{folder} is there already, and not empty; name another folder")
    shutil.copytree(BOOK, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "gitignore").rename(folder / ".gitignore")
    for file in ("mkdocs.yml", "content/site.yml") if not wrong else ():
        text = (folder / file).read_text(encoding="utf-8")
        named = text.replace("Sorting, measured", json.dumps(called, ensure_ascii=False))
        (folder / file).write_text(named, encoding="utf-8")


def new_experiment(root: Path, content: Path, name: str) -> list[Path]:
    """Write an experiment and its claims from templates; return both paths; refuse a taken name."""
    folder = root / "experiments" if own_book() else root / TEMPLATE.parent
    for needed in (content, folder):
        if not needed.is_dir():
            raise CannotScaffoldError(f"{needed}: no such folder; `new book DIR` makes a book")
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise CannotScaffoldError(f"{name!r}: small letters, digits and underscores")
    for path in sorted(folder.glob("[!_]*.py")):
        if name in experiments_in(path):
            raise CannotScaffoldError(f"{path} declares {name} already")
    template, law = PLAIN_TEMPLATE, _filled("plain claims", name=name)
    if not own_book():
        template = ROOT / TEMPLATE
        law = _SCHEMA.format(up="../../", file="claims") + _filled("claims", name=name)
    program = template.read_text(encoding="utf-8").replace("widths", name)
    return _written({folder / f"{name}.py": program, content / "claims" / f"{name}.yml": law})


def new_lesson(
    book: Book, content: Path, name: str, laws: Mapping[str, Law], experiment: str | None
) -> list[Path]:
    """Write topic, quiz, trace or worked, recall of a new topic from templates; return the paths.

    Its first questions are bound to one of the laws, and ask for what it reads. The page shows the
    run, of the experiment or of any, that recorded most; without run or law, CannotScaffoldError.
    """
    if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise CannotScaffoldError(f"{name!r}: small letters and digits, joined by hyphens")
    known = {*book.traces, *experiment_files()}
    if experiment and experiment not in known:
        raise CannotScaffoldError(str(unknown("experiment", experiment, sorted(known))))
    path = _run_to_lean_on(book, experiment)
    if not path or not laws:
        command = f"{program(f'{PYTHON} -m runners')} run {experiment or ''}".rstrip()
        message = "a lesson leans on a measured run and a law; measure one: "
        raise CannotScaffoldError(message + command)
    source = path.partition(".")[0] + "."
    own = [name for name, (runs, _) in laws.items() if any(run.startswith(source) for run in runs)]
    claim = next(iter([*(name for name in own if path in laws[name][0]), *own, *laws]))
    beliefs = (name for name, belief in book.misconceptions.items() if belief.refuted_by in own)
    run = book.run(path)
    mode = "trace" if run and (run.stages or run.epochs) else "worked"
    order = 1 + max((topic.file.order for topic in book.topics), default=0)
    belief = next(beliefs, None)  # never that of another topic
    folder = content / "topics" / name
    schema = "" if own_book() else _SCHEMA.format(up="../../../", file="{file}")
    title = name.replace("-", " ").capitalize()
    return _written({
        folder / f"{file}.yml": schema.format(file=file) + _filled(
            file, name=name, mode=mode, claim=claim, path=path, run=run, title=title,
            order=order, belief=belief, asks=laws[claim][1],
        ) for file in ("topic", "quiz", mode, "recall")
    })  # fmt: skip


def remaining_todos(book: Book) -> Iterator[str]:
    """Yield where TODO stands: `file:line, line` of documents, the QUESTION of experiments."""
    for document in book.documents:
        texts = [field for field in document.fields if TODO in field.text]
        lines = {document.error(field.path, "").line for field in texts}
        if numbers := ", ".join(map(str, sorted(lines))):
            yield f"{document.source.file}:{numbers}"
    for name, on_page in book.traces.items():
        if TODO in on_page.trace.question:
            yield f"the QUESTION of experiment {name}"


def _filled(file: str, **values: object) -> str:
    return _YAML.from_string(_FILES[file]).render(values)


def refuse_existing(*paths: Path) -> None:
    """CannotScaffoldError if any of the paths exists."""
    for path in paths:
        if path.exists():
            raise CannotScaffoldError(f"{path} exists already")


def _written(files: Mapping[Path, str]) -> list[Path]:
    refuse_existing(*files)
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)


def _run_to_lean_on(book: Book, experiment: str | None) -> str:
    """The path of the run that recorded most, of one experiment or of all; else empty."""
    runs = {
        f"{name}.{run}": bool(record.stages) + bool(record.epochs)
        for name, on_page in book.traces.items()
        if experiment in (None, name) and not on_page.is_of_planner
        for run, record in on_page.trace.runs.items()
        if record.status == "completed"
    }
    return max(runs, key=lambda name: runs[name], default="")
