"""`python -m generator new`: the first files of a book or an experiment, green at once.

A book is copied from `proofbook/new_book`, and takes the title. An experiment is written from a
template that is one, with or without ranks, with a law on its runs. `TODO` begins each text that is
to be written; `generator check` says where one still stands.
"""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from jinja2 import Environment, StrictUndefined

import proofbook
from proofbook.generator.content.book import Book
from proofbook.generator.content.prose import faults
from proofbook.runners.system.book import ROOT, experiments_in, own_book

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
}
YAML = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
SCHEMA = "# yaml-language-server: $schema={up}.cache/schemas/{file}.json\n"  # for editors


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
        law = SCHEMA.format(up="../../", file="claims") + _filled("claims", name=name)
    program = template.read_text(encoding="utf-8").replace("widths", name)
    return written({folder / f"{name}.py": program, content / "claims" / f"{name}.yml": law})


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
    return YAML.from_string(_FILES[file]).render(values)


def refuse_existing(*paths: Path) -> None:
    """CannotScaffoldError if any of the paths exists."""
    for path in paths:
        if path.exists():
            raise CannotScaffoldError(f"{path} exists already")


def written(files: Mapping[Path, str]) -> list[Path]:
    """Write new files; return their paths, or CannotScaffoldError if there is one of these."""
    refuse_existing(*files)
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)
