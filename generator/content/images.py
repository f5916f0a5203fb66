"""Images of texts: files beside the texts that show them, copied into the site.

In: a document and the project's root. Out: the files of its images, by path under the site's root,
or what is wrong with one of them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generator.content import prose
from generator.content.documents import TEXTS, Document
from generator.content.errors import ContentError, nearest

SUFFIXES = (".png", ".svg", ".webp", ".jpg", ".jpeg", ".gif")
LARGEST = 200_000  # bytes
# Of lessons, questions and pages; the texts of others stand on pages of several folders.
_PLACES = re.compile(r"content/(?:topics/[^/]+/(?!topic\.)[^/]+\.yml|pages/.+\.md)")


def problems(document: Document[Any], root: Path) -> Iterator[ContentError]:
    """What is wrong with the images of a file: one mistake for each."""
    for one in document.fields:
        for start, name in prose.images(one.text) if one.mark in TEXTS else ():
            if problem := _problem(document, root, name):
                yield document.error_in(one, start, f"image {name!r}: {problem}")


def files(document: Document[Any], root: Path) -> Iterator[tuple[str, Path]]:
    """The images of a topic's file; those of pages by hand are copied with them."""
    folder = _folder(document)
    for one in document.fields if folder.startswith("content/topics/") else ():
        for _, name in prose.images(one.text) if one.mark == "prose" else ():
            yield f"{folder.removeprefix('content/')}/{name}", root / folder / name


def _folder(document: Document[Any]) -> str:
    return document.source.file.rpartition("/")[0]


def _problem(document: Document[Any], root: Path, name: str) -> str | None:
    folder = _folder(document)
    if not _PLACES.fullmatch(document.source.file):
        return "lessons, questions and pages of content/pages show images, and no other text does"
    top = root / ("content/pages" if folder.startswith("content/pages") else folder)
    path = (root / folder / name).resolve()
    if not path.is_relative_to(top.resolve()) or path.suffix not in SUFFIXES:
        return f"it lies in {top.relative_to(root).as_posix()}, and is one of {', '.join(SUFFIXES)}"
    if not path.is_file():
        known = [one.name for one in path.parent.glob("*") if one.suffix in SUFFIXES]
        return f"no such file in {folder}{nearest(name, known)}"
    size = path.stat().st_size
    if size > LARGEST:
        return f"it has {-(-size // 1000)} kB, and an image may have {LARGEST // 1000}"
    return None
