"""Code shown from the file that a run executed, and what that run printed and came to."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from markupsafe import Markup
from pygments import highlight  # type: ignore[import-untyped]
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.lexers import PythonLexer  # type: ignore[import-untyped]

from generator.exhibit import Listing
from generator.views.folio import Folio

_FORMATTER = HtmlFormatter(nowrap=True)


@dataclass(frozen=True)
class ListingOnPage:
    """A listing as its template wants it.

    Attributes:
        title: the author's line over it.
        path: the file, from the project's root.
        code: highlighted HTML.
        run: `experiment.run`, or None.
        status: how the run ended, in words.
        message: what was raised, as it was raised.
        printed: what rank 0 printed.
    """

    title: Markup
    path: str
    code: Markup
    run: str | None
    status: str
    message: str
    printed: str


def listing(written: Listing, folio: Folio) -> ListingOnPage:
    """Read a listing from its file and its run."""
    code = source(folio.book.root, written.path, written.object)
    run = folio.run(written.run) if written.run else None
    failure = run.error if run else None
    return ListingOnPage(
        title=folio.line(written.title),
        path=written.path,
        code=Markup(highlight(code, PythonLexer(), _FORMATTER)),
        run=written.run,
        status=folio.ui["statuses"][run.status] if run else "",
        message=failure.message if failure else "",
        printed="\n".join(run.printed) if run else "",
    )


@lru_cache(maxsize=256)
def _text(path: Path, changed: int) -> str:
    return path.read_text(encoding="utf-8")


def source(root: Path, path: str, name: str | None) -> str:
    """The text of a file, or of one function or class of it, with its decorators.

    Raises:
        ValueError: there is no such file, or no such object in it.
    """
    file = root / path
    if not file.is_file():
        raise ValueError(f"{path}: no such file")
    text = _text(file, file.stat().st_mtime_ns)
    if name is None:
        return text.strip("\n") + "\n"
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        ):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno])) + "\n"
    raise ValueError(f"{path}: no function or class {name!r}")
