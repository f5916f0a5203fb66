"""Drawings and images of a question → files that stand alone, and where its text shows them."""

import re
from functools import cache
from pathlib import Path

from markupsafe import escape
from rcssmin import cssmin  # type: ignore[import-untyped]

from generator.content.typesetting import plain
from generator.website.publish import STYLES

_PICTURE = re.compile(r"<svg\b[^>]*>.*?</svg>|<img\b[^>]*>", re.DOTALL)
_HEAD = re.compile(r'<svg\b[^>]*?viewBox="0 0 (\S+) (\S+)"[^>]*>')
_SAID = re.compile(r"<(title|desc)\b[^>]*>(.*?)</\1>", re.DOTALL)
_SOURCE = re.compile(r'\bsrc="([^"]*)"')
_LIGHT = re.compile(r"light-dark\(([^,]+),[^;]+\)(?=[;}])")
_PLAYED = ".pb-past{display:none}"  # the line of a player


def pictures_apart(html: str, name: str, folder: Path) -> tuple[str, dict[str, bytes]]:
    """A text whose pictures are files.

    Args:
        html: with drawings, of which the wide one of two is taken, and images.
        name: with which the names of the files begin.
        folder: in which images lie.
    """
    files: dict[str, bytes] = {}

    def shown(picture: re.Match[str]) -> str:
        text = picture[0]
        if source := _SOURCE.search(text):
            file = f"{name}-{Path(source[1]).name}"
            files[file] = (folder / source[1]).read_bytes()
            return text.replace(source[0], f'src="{file}"')
        if "pb-narrow" in text.partition(">")[0] and "pb-wide" in html:
            return ""
        file = f"{name}-{len(files) + 1}.svg"
        says = ". ".join(plain(words) for _, words in _SAID.findall(text))
        files[file] = _HEAD.sub(_alone, text, count=1).encode()
        return f'<img src="{file}" alt="{escape(says)}"/>'

    return _PICTURE.sub(shown, html), files


def _alone(head: re.Match[str]) -> str:
    """The beginning of a drawing as a document, with its styles; it is light on any screen."""
    of = f'xmlns="http://www.w3.org/2000/svg" class="pb-drawing" viewBox="0 0 {head[1]} {head[2]}"'
    return f'<svg {of} width="{head[1]}" height="{head[2]}"><style>{_style()}</style>'


@cache
def _style() -> str:
    parts = ((STYLES / f"{one}.css").read_text(encoding="utf-8") for one in ("palette", "drawings"))
    return str(escape(_LIGHT.sub(r"\1", cssmin("".join(parts))) + _PLAYED))
