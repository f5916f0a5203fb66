"""What fails a strict build though the content is sound: traces that are stale or missing.

Also runs that ended otherwise than declared, laws that do not hold, and experiments whose files
cannot be executed.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from proofbook.generator.checks.claim_checks import broken_laws
from proofbook.generator.content.book import Book
from proofbook.generator.content.shelf import TraceOnPage
from proofbook.generator.values.verdicts import Judged
from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.trace.machine import pinned
from proofbook.runners.core.trace.records import NO_TORCH
from proofbook.runners.system.book import ROOT, experiment_files, own_book
from proofbook.runners.system.errors import FixableError
from proofbook.runners.system.kinds import kinds
from proofbook.runners.traces.digest import program_digests
from proofbook.runners.traces.files import again


def problems(book: Book, outcomes: Mapping[str, Judged]) -> list[str]:
    """A list of lines, a problem each: those of traces and experiments, then the broken laws."""
    lines: list[str] = []
    for experiment, trace in book.traces.items():
        lines += _stale(book, experiment, trace) if trace.is_stale else ()
        lines += [
            f"{experiment}.{name}: ended {run.status}, expected {run.expected_status}"
            for name, run in trace.runs.items()
            if run.is_surprise
        ]
    for name in unmeasured(book):
        lines += _broken(book, name)
    for kind in kinds():
        lines += kind.take(kind.problems)(book) if kind.problems else ()
    lines += other_releases(book, pinned)
    return [*lines, *map(str, broken_laws(book, outcomes))]


def unmeasured(book: Book) -> dict[str, str]:
    """By name of an experiment or a program that no machine has measured yet, its experiment."""
    if not _is_at_home(book):
        return {}
    missing = {name: name for name in sorted(experiment_files().keys() - book.traces.keys())}
    for name, trace in book.traces.items():
        measured = {run.settings.get("program") for run in trace.runs.values()}
        missing |= dict.fromkeys(sorted(program_digests(name).keys() - measured), name)
    return missing


def other_releases(book: Book, release: Callable[[str], str]) -> Iterator[str]:
    """Yield lines: which traces have another torch or numpy than `pinned` or `installed` says."""
    traces: dict[str, list[str]] = {}
    for package in ("torch", "numpy") if _is_at_home(book) else ():
        now = release(package).partition("+")[0]
        for name, on_page in book.traces.items():
            then = (getattr(on_page.trace.circumstances, package) or NO_TORCH).partition("+")[0]
            if now and then not in (NO_TORCH, now):
                why = f"{package} {then}, and {now} is {release.__name__}; take {then}, or measure"
                traces.setdefault(why, []).append(name)
    for why, names in traces.items():
        yield f"{', '.join(names)}: measured with {why} again"


def _is_at_home(book: Book) -> bool:
    """Whether the experiments and pins of this place are those of the book."""
    return book.root == (own_book() or ROOT)


def _stale(book: Book, experiment: str, trace: TraceOnPage) -> list[str]:
    """Lines: why a trace or a plan is stale, and the command that renews it."""
    do = f"run {again(Path(trace.file))}"
    if trace.nature:
        return [f"content/{trace.file}: the code that simulates has changed; {do}"]
    if _is_at_home(book) and experiment not in experiment_files():
        do = f"delete content/{trace.file}, whose experiment is gone"
    line = f"{experiment}: the reference machine's trace is stale; {do}"
    is_of_reference = trace.machine.name == book.reference.name
    return _broken(book, experiment) or [line] * is_of_reference


def _broken(book: Book, experiment: str) -> list[str]:
    """A line, if the file of an experiment cannot be executed."""
    if experiment in experiment_files():
        try:
            find(experiment)
        except FixableError as error:
            return [str(error).removeprefix(f"{book.root}/")]
    return []
