"""The generator's commands.

    python -m generator check     every mistake, and what does not hold
    python -m generator new experiment NAME    an experiment's first files; new lesson: a topic's
    python -m generator new book DIR           a book of your own: first experiment, topic and test
    python -m generator schema    write the JSON Schemas that editors read
    python -m generator keys      the keys of the YAML files, and the functions of expressions

Exit codes: 0 sound; 1 a run surprised or a law does not hold; 2 mistakes, or a wrong
call; 130 Ctrl-C; 143 SIGTERM.
"""

import atexit
import gc

from proofbook.runners.system import stopping

if __name__ == "__main__":
    stopping.listen("stopped; run the same command again")  # before all else is loaded
    gc.disable()  # a command ends before its cycles need collecting,
    atexit.register(gc.freeze)  # also at its end

import argparse
import inspect
import json
import keyword
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from proofbook.generator.checks import claim_checks, content_checks, site_checks, trace_checks
from proofbook.generator.content import keys, scaffold
from proofbook.generator.content.book import Book
from proofbook.generator.content.errors import ContentErrors
from proofbook.generator.content.reading import documents, file_models, load
from proofbook.generator.content.shelf import measure_command
from proofbook.generator.values.evaluation import ROOTS, Evidence, verdict_words
from proofbook.generator.values.filters import FUNCTIONS, OF_CLAIMS
from proofbook.generator.values.laws import closed_forms
from proofbook.runners.core.trace.machine import from_home, installed
from proofbook.runners.system.book import enter_book, own_book, program
from proofbook.runners.system.kinds import BookCommand, Kind, kinds
from proofbook.runners.traces.files import MACHINE

SCHEMAS = {  # by the words of the patterns of files: "topics/*/quiz*.yml" has the schema quiz
    (Path(pattern).stem.rstrip("*") or Path(pattern).parent.name): model
    for pattern, model in file_models().items()
}
SCHEMA_FOLDER = Path(".cache/schemas")  # the first line of each file of YAML names its schema there
ABOUT_FUNCTIONS = """
## Functions

An expression starts from an experiment, `machine` or `cited`, or from a name that
`for:` gives. `python -m runners show RUN` prints the expression of each value of a run.
`a | f(b)` is `f(a, b)`, where `a` is the whole sum before `|`.

| function | is |
|---|---|"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command on the current folder's book; return its exit code, or 2 after an error."""
    enter_book(Path.cwd())
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ContentErrors as errors:
        print(errors, file=sys.stderr)
        num = len(errors.errors)
        print(f"{num} mistake{'s' if num != 1 else ''} in the content", file=sys.stderr)
    except KeyboardInterrupt as stopped:
        return stopping.report(stopped)
    except scaffold.CannotScaffoldError as error:
        print(error, file=sys.stderr)
    except BrokenPipeError:  # such as `| head`
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{where}{error.strerror}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    prog = program("python -m generator")
    parser = argparse.ArgumentParser(prog=prog, description="The generator.")
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    check = verbs.add_parser(
        "check", help="list every mistake, surprise, and claim that does not hold"
    )
    new = verbs.add_parser("new", help="start a book of your own, an experiment or a lesson")
    schema = verbs.add_parser("schema", help="write the JSON Schemas of the YAML files")
    listing = verbs.add_parser("keys", help="print every key of the YAML files, and every function")
    listing.add_argument("word", nargs="?", help="only parts with this name or key: draws")
    commands = {check: _check, new: _new, schema: _schema, listing: _keys}
    of_kinds = {}
    for name, (kind, at) in _commands_of_kinds().items():
        command: BookCommand = kind.take(at)
        verb = verbs.add_parser(name, help=command.about)
        command.add_arguments(verb)
        of_kinds[verb] = command.run
    for verb in (check, new, listing, *of_kinds):
        verb.add_argument("--content", type=Path, default=Path("content"), metavar="DIR")
    for verb in (check, new, *of_kinds):
        verb.add_argument("--machine", help="whose traces to show, by their folder's name")
    new.add_argument("what", choices=["book", "experiment", *_starts()])
    new.add_argument("name", help="of the experiment or the lesson, or the folder of the book")
    new.add_argument("--title", help="of the book; by default the name of its folder")
    new.add_argument("--from", dest="experiment", help="whose runs the lesson shows")
    for verb, run in (commands | of_kinds).items():
        verb.set_defaults(command=run)
    return parser


def _commands_of_kinds() -> dict[str, tuple[Kind, str]]:
    return {name: (kind, at) for kind in kinds() for name, at in kind.book_commands.items()}


def _check(options: argparse.Namespace) -> int:
    book = load(options.content, options.machine)
    evidence = content_checks.checked(book)
    judged = evidence.judged_claims
    unheld = {name: outcome for name, outcome in judged.items() if outcome.verdict != "holds"}
    for name, outcome in unheld.items():
        words, values = verdict_words(outcome.verdict), claim_checks.values_text(book, outcome)
        print(f"{words:22}{outcome.claim.kind:13}{name}: {outcome.explanation}{values}")
    problems = [*(site_checks.mistakes(book.root) if own_book() else ())]
    problems += trace_checks.problems(book, judged)
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    for note in _notes(book, evidence):
        print(note)
    summary = "problems, see above" if problems else "sound"
    false = sum(outcome.verdict == "does_not_hold" for outcome in unheld.values())
    if false and not problems:  # observations, which the build lets pass: pages say so
        summary = f"sound, but {false} observation{'s do' if false != 1 else ' does'} not hold"
    print(
        f"{summary}: {len(book.items)} questions checked, "
        f"{len(judged) - len(unheld)} of {len(judged)} claims hold; "
        f"numbers of {book.machine.name}",
        file=sys.stderr if problems else sys.stdout,
    )
    return 1 if problems else 0


def _notes(book: Book, evidence: Evidence) -> Iterator[str]:
    """Yield lines: what a check could not look at, and what is still to be written."""
    lent: dict[str, list[str]] = {}
    for name, trace in book.traces.items():
        if trace.measured_on not in ("", book.machine.name):
            lent.setdefault(trace.machine.name, []).append(name)
        elif trace.is_stale and not book.is_reference:
            yield f"{name}: stale, so its verdicts are left out; run `{measure_command()}`"
    for machine, names in lent.items():
        yield f"no trace of this machine, taken from {machine}: {', '.join(names)}"
    for name, experiment in trace_checks.unmeasured(book).items():
        do = measure_command(experiment, full=name != experiment)
        yield f"{name}: not measured yet; run `{do}`"
    yield from trace_checks.other_releases(book, installed)
    by_hand = [f"{name}.md" for name in book.handwritten_by_name]
    yield from site_checks.unlisted(book.root, by_hand) if own_book() else ()
    for place in scaffold.remaining_todos(book):
        yield f"to be written, where {scaffold.TODO} stands: {place}"
    for kind in kinds():
        yield from kind.take(kind.notes)(evidence) if kind.notes else ()


def _new(options: argparse.Namespace) -> int:
    if options.what == "book":
        return _new_book(Path(options.name), options.title)
    if options.title is not None:
        raise scaffold.CannotScaffoldError("--title is for a book")
    check = f"{program(f'{scaffold.PYTHON} -m generator')} check"
    if options.what == "experiment":
        if options.experiment:
            message = "--from is for a lesson: it names whose runs it shows"
            raise scaffold.CannotScaffoldError(message)
        root = options.content.resolve().parent
        words = {*keyword.kwlist, MACHINE, *ROOTS, "run", "other", "called", *closed_forms()}
        reserved = tuple(begin for kind in kinds() for begin in kind.reserved)
        if options.name in words | {*FUNCTIONS, *OF_CLAIMS} or options.name.startswith(reserved):
            message = f"{options.name!r} stands for something else; choose another name"
            raise scaffold.CannotScaffoldError(message)
        for path in scaffold.new_experiment(root, options.content, options.name):
            print(from_home(path))
        print(f"then: {program(f'{scaffold.PYTHON} -m runners')} run {options.name}; {check}")
        return 0
    for line in _starts()[options.what](options, check):
        print(line)
    return 0


def _starts() -> dict[str, Callable[[argparse.Namespace, str], Iterator[str]]]:
    """What kinds start, by its word."""
    return {word: kind.take(start) for kind in kinds() for word, start in kind.starts.items()}


def _new_book(folder: Path, title: str | None) -> int:
    scaffold.new_book(folder, title)
    # Such as PROOFBOOK_TRACES, by which a person names the folder of another book's traces.
    own = {name: text for name, text in os.environ.items() if not name.startswith("PROOFBOOK_")}
    for word in "run", "check":
        done = subprocess.run(
            [sys.executable, "-m", "proofbook", word], cwd=folder, env=own, check=False
        )
        if done.returncode:
            return done.returncode
    there = shlex.quote(str(folder))
    print(f"{folder}: a book. Read its README.md, then: cd {there} && mkdocs serve")
    return 0


def _schema(_: argparse.Namespace) -> int:
    SCHEMA_FOLDER.mkdir(parents=True, exist_ok=True)
    for name, model in SCHEMAS.items():
        text = json.dumps(model.model_json_schema(), indent=1, sort_keys=True)
        (SCHEMA_FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    print(f"{SCHEMA_FOLDER}: {len(SCHEMAS)} schemas for editors")
    return 0


def _keys(options: argparse.Namespace) -> int:
    """Print keys, and as a table functions: what each takes, and what its docstring says."""
    files, errors = documents(options.content)  # also while a file has a mistake
    functions = [ABOUT_FUNCTIONS]
    for name, function in {**FUNCTIONS, **closed_forms()}.items():
        takes = ", ".join(inspect.signature(function).parameters)
        about, _, _ = (inspect.getdoc(function) or "").partition("\n\n")
        functions.append(f"| `{name}({takes})` | {keys.table_cell(about)} |")
    functions += (f"| `{name}('claim')` | {about} |" for name, about in OF_CLAIMS.items())
    sections = [*keys.page(file_models().values(), files), "\n".join(functions)]
    if options.word and not (sections := keys.sections_about(options.word, sections)):
        raise scaffold.CannotScaffoldError(f"no part and no key begins with {options.word!r}")
    print("\n".join(sections).replace("python -m runners", program()))
    if errors:
        raise ContentErrors(errors)
    return 0


if __name__ == "__main__":
    stopping.leave(main())
