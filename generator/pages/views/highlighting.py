"""Python as HTML in colours, with an element only where the colour changes."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

from markupsafe import Markup, escape
from pygments.lexers import PythonLexer  # type: ignore[import-untyped]
from pygments.token import STANDARD_TYPES, _TokenType  # type: ignore[import-untyped]

# Keywords, strings, comments, numbers, and the names of what is defined. All else has the colour
# of the text: an element for each name and bracket made a third of a page.
_COLOURED = ("k", "s", "c", "m")
_NAMES = frozenset({"nf", "fm", "nc", "nd", "ne", "ow"})


def _css(kind: _TokenType) -> str:
    name = STANDARD_TYPES[kind]
    return name if name.startswith(_COLOURED) or name in _NAMES else ""


@lru_cache(maxsize=1024)
def highlighted(code: str) -> Markup:
    """Code as HTML, for a `<code>` under `.highlight`."""
    tokens = ((_css(kind), text) for kind, text in PythonLexer().get_tokens(code))
    parts = []
    for css, alike in groupby(tokens, key=lambda one: one[0]):
        plain = escape("".join(text for _, text in alike))
        parts.append(Markup('<span class="{}">{}</span>').format(css, plain) if css else plain)
    return Markup("").join(parts)
