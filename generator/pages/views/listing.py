"""Code shown from the file that a run executed, line by line, and what that run printed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from generator.content.exhibit import CodeNote, Listing
from generator.content.listed_code import file_of, listed
from generator.content.typesetting import parted
from generator.evidence.folio import Folio
from generator.pages.shown import Shown
from generator.pages.views.highlighting import highlighted
from runners.traces.records import Failure

KEPT = 300  # characters of a message that a rank records; runners/ranks/process.py cuts it there
# Before a name that follows a dot or a bracket, in the text and in no tag.
_JOINT = re.compile(r"(?<=[\w)])([.(])(?=[A-Za-z_])(?![^<]*>)")
_NAME = re.compile(r"\w+(?![^<]*>)")
WHOLE = 29  # letters of a name that stays whole in a line of code


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


def notes(
    program: Listing, written: Sequence[CodeNote], folio: Folio
) -> list[tuple[int, Markup, Markup]]:
    """The notes on a program: the number of a line from 1, the line, and what it does."""
    text = listed(folio.book.root, program.path, program.object)
    lines = [line.strip() for line in text.splitlines()]
    return [
        (
            1 + lines.index(note.code.strip()),
            breakable_code(highlighted(note.code.strip()).strip()),
            folio.line(note.says),
        )
        for note in written
    ]


def breakable_code(code: Markup) -> Markup:
    """A line of code with places where a narrow page may break it."""
    joined = _JOINT.sub(r"\1<wbr>", str(code))
    return Markup(_NAME.sub(lambda name: parted([name[0]], WHOLE), joined))
