"""The lines in which a corrected program differs from a wrong one, and what both printed."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from generator.content.exhibit import Listing
from generator.content.listed_code import listed
from generator.evidence.folio import Folio
from generator.pages.shown import Shown
from generator.pages.views.highlighting import highlighted_lines
from generator.pages.views.listing import breakable_code, listing

CONTEXT = 2  # lines around those that differ
MOST = 20  # lines that differ; beyond, two programs are easier to read than their difference
_Changes = Sequence[tuple[str, int, int, int, int]]


class _Body(NamedTuple):
    """A program below its docstring, which only says which of the two it is."""

    first: int  # the number of its first line
    coloured: Sequence[Markup]
    compared: list[str]  # without indents


def difference(wrong: Listing, right: Listing, folio: Folio) -> Shown:
    """Both programs, and what differs between them: empty where that is most of both."""
    root = folio.book.root
    before, after = (_body(listed(root, one.path, one.object)) for one in (wrong, right))
    return Shown(
        wrong=listing(wrong, folio),
        right=listing(right, folio),
        lines=unified(before, after, folio.ui["learn"]["line"]),
    )


def _body(code: str) -> _Body:
    docstring = next(iter(ast.parse(code).body), None)
    is_one = isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
    start = (docstring.end_lineno or 0) if docstring and is_one else 0
    lines = [line.strip() for line in code.splitlines()[start:]]
    return _Body(1 + start, tuple(map(breakable_code, highlighted_lines(code)[start:])), lines)


def unified(before: _Body, after: _Body, word: str) -> Markup:
    """A unified diff in which a change of nothing but the indent counts as none."""
    matcher = difflib.SequenceMatcher(None, before.compared, after.compared, autojunk=False)
    groups = list(matcher.get_grouped_opcodes(CONTEXT))
    if sum(map(_num_changed, groups)) > MOST:
        return Markup()
    return Markup("").join(
        Markup("<small>{} {}</small>\n{}\n").format(
            word,
            before.first + group[0][1],
            Markup("").join(_lines(group, before.coloured, after.coloured)).rstrip(),
        )
        for group in groups
    )


def _num_changed(group: _Changes) -> int:
    changed = [one[1:] for one in group if one[0] != "equal"]
    return sum(end - start + last - first for start, end, first, last in changed)


def _lines(group: _Changes, before: Sequence[Markup], after: Sequence[Markup]) -> list[Markup]:
    """Lines of both programs as the right one has them; else the wrong one's, then its own."""
    shown: list[Markup] = []
    for tag, start, end, first, last in group:
        mark = Markup("  {}\n") if tag == "equal" else Markup("<ins>+ {}</ins>\n")
        gone = before[start:end] if tag != "equal" else ()
        shown += [Markup("<del>- {}</del>\n").format(line) for line in gone]
        shown += [mark.format(line) for line in after[first:last]]
    return shown
