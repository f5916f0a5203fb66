"""Python as HTML in colours, with an element only where the colour changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

from markupsafe import Markup, escape
from pygments.lexers import PythonLexer  # type: ignore[import-untyped]
from pygments.token import STANDARD_TYPES, _TokenType  # type: ignore[import-untyped]

# Keywords, strings, comments, numbers, and the names of what is defined. All else has the colour
# of the text: an element for each name and bracket made a third of a page.
_COLOURED = ("k", "s", "c", "m")
_NAMES = frozenset({"nf", "fm", "nc", "nd", "ne", "ow"})
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _css(kind: _TokenType) -> str:
    name = STANDARD_TYPES[kind]
    return name if name.startswith(_COLOURED) or name in _NAMES else ""


@lru_cache(maxsize=1024)
def highlighted(code: str) -> Markup:
    """Code as HTML, for a `<code>` under `.highlight`."""
    return Markup("").join(_span(css, text) for css, text in _runs(code))


@lru_cache(maxsize=64)
def highlighted_lines(code: str) -> tuple[Markup, ...]:
    """The same line by line, for a `<code>` each: no element goes on in the next line."""
    lines = [Markup("")]
    for css, text in _runs(code):
        first, *others = text.split("\n")
        lines[-1] += _span(css, first)
        lines += [_span(css, other) for other in others]
    return tuple(lines)


def as_listings(markdown: str) -> str:
    """Markdown whose fenced code is a listing like those of lessons, in colours if it is Python."""

    def listing(found: re.Match[str]) -> str:
        code = highlighted(found[2]) if found[1] == "python" else escape(found[2])
        box = Markup('<div class="highlight"><pre><code>{}</code></pre></div>').format(code)
        return Markup('<div class="pb-listing">{}</div>').format(box)

    return _FENCE.sub(listing, markdown)


def _runs(code: str) -> Iterator[tuple[str, str]]:
    """Neighbouring tokens of one colour, with its class."""
    tokens = ((_css(kind), text) for kind, text in PythonLexer().get_tokens(code))
    for css, alike in groupby(tokens, key=lambda one: one[0]):
        yield css, "".join(text for _, text in alike)


def _span(css: str, text: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(css, text) if css and text else escape(text)
