"""The reports of `verify` that a book holds: of its own programs, and of what a reader watched.

In: `content/verified/`, and of a reader `content/tries/`. Out: `Reports`, or every mistake.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from proofbook.companions.verify.report import SUFFIX, Watched, own_digest, read
from proofbook.generator.content.book import Book
from proofbook.generator.content.documents import Document
from proofbook.generator.content.errors import ContentError, Files, visible_files
from proofbook.generator.content.exhibit import Listing
from proofbook.generator.content.handwritten import HandWritten
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.values.evaluation import Evidence
from proofbook.runners.core.trace.schema import digest_of


class Verified(Listing):
    """A program of content/verified, what `verify` printed of it, and how its tensors compare."""


@dataclass(frozen=True)
class Reports:
    """All of them."""

    verified: dict[str, Watched] = field(default_factory=dict)  # that the book shows, by program
    watched: dict[str, Watched] = field(default_factory=dict)  # by readers, by name, newest first
    unread: tuple[ContentError, ...] = ()  # files of these that cannot be read


def reports(files: Files, with_tries: bool) -> Reports:
    """Those of a folder of content; what a reader wrote cannot be a mistake of the book."""
    verified = dict(_verified(files))
    if not with_tries:
        return Reports(verified)
    own = Files(files.content)
    paths = visible_files(files.content / "tries", f"*{SUFFIX}")
    read_of = {path.name.removesuffix(SUFFIX): own.read_or_refuse(read, path) for path in paths}
    known = [(name, trace) for name, trace in read_of.items() if trace]
    newest = sorted(known, key=lambda pair: pair[1].recorded_at, reverse=True)
    return Reports(verified, dict(newest), tuple(own.errors))


def _verified(files: Files) -> Iterator[tuple[str, Watched]]:
    """Yield (program's file name, report) in `content/verified`; refuse outdated reports."""
    for path in visible_files(files.content / "verified", "*.json"):
        program = path.with_suffix(".py")
        if report := files.read_or_refuse(read, path):
            if not program.is_file() or report.code != digest_of(files.text_of(program)):
                files.refuse(path, f"{program.name} is another program now; {report.anew}")
            yield files.name(program), report


def mistakes(evidence: Evidence, document: Document[HandWritten]) -> Iterator[Mistake]:
    """Programs that a page shows as verified, and that no report lies beside."""
    known = evidence.book.part(Reports).verified
    for number, program in enumerate(document.model.of_kinds().get("verified", ())):
        if isinstance(program, Verified) and program.path not in known:
            message = f"{program.path}: no report of `verify` lies beside it"
            yield ("verified", number, "path"), message


def problems(book: Book) -> Iterator[str]:
    """Lines: reports of a `verify` whose code has changed since."""
    for name, report in book.part(Reports).verified.items():
        if report.judge != own_digest():
            yield f"{name}: the code of `verify` has changed; run {report.anew}"
