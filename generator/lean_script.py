"""Our scripts as pages load them: without comments and without space that says nothing. Pure.

In: a classic script in the style of `assets/`, where every statement ends in a semicolon and a
division stands between spaces. Out: the same tokens, so the same program.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""(?P<said>"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`  # strings and templates, as they are
        |(?<=[(,=:!&|?\[])[ ]?/(?![/*\s])(?:\\.|\[(?:\\.|[^\]\n])*\]|[^/\\\n])+/[a-z]*)  # a pattern
      |(?P<comment>//[^\n]*|/\*.*?\*/)
      |(?P<space>\s+)
      |(?P<word>[\w$]+)
      |(?P<mark>.)""",
    re.DOTALL | re.VERBOSE,
)


def tokens(script: str) -> list[str]:
    """The script's words, marks, strings and patterns, in order."""
    return [
        match[0].strip()
        for match in _TOKEN.finditer(script)
        if match.lastgroup not in ("comment", "space")
    ]


def lean(script: str) -> str:
    """The same script in fewer bytes."""
    out: list[str] = []
    for token in tokens(script):
        if out and _would_merge(out[-1][-1], token[0]):
            out.append(" ")
        out.append(token)
    return "".join(out) + "\n"


def _would_merge(before: str, after: str) -> bool:
    """Whether two neighbours need a space: words, or signs such as `+ +`."""
    is_word = (before.isalnum() or before in "_$") and (after.isalnum() or after in "_$")
    return is_word or (before == after and before in "+-/")
