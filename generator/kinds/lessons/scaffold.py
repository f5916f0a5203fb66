"""`python -m generator new lesson`: the first files of a topic, green at once.

It has the page Recall and, where its run has recorded stages or epochs, Trace, else Worked.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from proofbook.generator.content.book import Book
from proofbook.generator.content.reading import load
from proofbook.generator.content.scaffold import PYTHON, SCHEMA, YAML, CannotScaffoldError, written
from proofbook.generator.kinds.questions import asked
from proofbook.generator.values.evaluation import Evidence
from proofbook.runners.system.book import experiment_files, own_book, program
from proofbook.runners.system.errors import unknown

_FILES = {  # each of them as Jinja writes it
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


def start(options: argparse.Namespace, check: str) -> Iterator[str]:
    """Yield lines: the files of a new topic, and what to do next."""
    book = load(options.content, options.machine)
    evidence = Evidence(book)
    laws = {
        name: (outcome.runs, asked.names_read(name, evidence))
        for name, outcome in evidence.judged_claims.items()
        if outcome.claim.kind == "law" and outcome.verdict == "holds"
    }
    yield from map(str, new_lesson(book, options.content, options.name, laws, options.experiment))
    yield f"write over its texts, bind its questions to claims, then: {check}"


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
    schema = "" if own_book() else SCHEMA.format(up="../../../", file="{file}")
    title = name.replace("-", " ").capitalize()
    return written({
        folder / f"{file}.yml": schema.format(file=file) + _filled(
            file, name=name, mode=mode, claim=claim, path=path, run=run, title=title,
            order=order, belief=belief, asks=laws[claim][1],
        ) for file in ("topic", "quiz", mode, "recall")
    })  # fmt: skip


def _filled(file: str, **values: object) -> str:
    return YAML.from_string(_FILES[file]).render(values)


def _run_to_lean_on(book: Book, experiment: str | None) -> str:
    """The path of the run that recorded most, of one experiment or of all; else empty."""
    runs = {
        f"{name}.{run}": bool(record.stages) + bool(record.epochs)
        for name, on_page in book.traces.items()
        if experiment in (None, name) and not on_page.nature
        for run, record in on_page.trace.runs.items()
        if record.status == "completed"
    }
    return max(runs, key=lambda name: runs[name], default="")
