"""Code shown from the file that a run executed, and what that run printed and came to."""

from __future__ import annotations

from generator.content.exhibit import Listing
from generator.content.listed_code import file_of, listed
from generator.evidence.folio import Folio
from generator.pages.shown import Shown
from generator.pages.views.highlighting import highlighted
from runners.traces.records import Failure

KEPT = 300  # characters of a message that a rank records; runners/ranks/process.py cuts it there


def listing(written: Listing, folio: Folio) -> Shown:
    """Read a listing from its file and its run."""
    code = listed(folio.book.root, written.path, written.object)
    return Shown(
        title=folio.line(written.title),
        path=written.path,
        code=highlighted(code),
        num_lines=code.count("\n"),
        file=None if written.object else file_of(written.path),
        **vars(printed(written.run, folio)),
    )


def printed(path: str | None, folio: Folio) -> Shown:
    """The output of a run, without the code behind it."""
    run = folio.run(path) if path else None
    return Shown(
        run=path,
        status=folio.ui["statuses"][run.status if run else "skipped"],
        message=_failed(run.error, folio) if run and run.error else "",
        printed="\n".join(run.printed) if run else "",
    )


def _failed(failure: Failure, folio: Folio) -> str:
    """The recorded message; where all ranks hang together in a program, what that means.

    A program has no phases of its own, so the recorded message cannot say where its ranks are.
    """
    if failure.kind == "hang" and failure.rank is None and failure.phase == "program":
        return str(folio.ui["listing"]["hang_together"])
    return raised(failure)


def raised(failure: Failure) -> str:
    """The recorded message; one that was cut ends with its last whole word, and says so."""
    message = failure.message
    if len(message) != KEPT:
        return message
    return f"{message.rpartition(' ')[0] or message} …"
