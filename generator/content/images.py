"""Images of texts: files beside the texts that show them, copied into the site.

In: a document and the project's root. Out: the files of its images, by path under the site's root,
or what is wrong with one of them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from proofbook.generator.content import addresses, prose
from proofbook.generator.content.documents import TEXTS, Document
from proofbook.generator.content.errors import ContentError, nearest
from proofbook.generator.content.numerals import SPELLED, numerals

SUFFIXES = (".png", ".svg", ".webp", ".jpg", ".jpeg", ".gif")
MOST = 200  # kB
_WORDED = ("}text", "}title", "}desc", "}foreignObject")
_NAMES = re.compile(r"(?i)\b(?:rank|step|layer)s?\s+\d+\b")


def files(document: Document[Any]) -> Iterator[str]:
    """Yield paths, below the content and the site's root, of images that a topic's file shows."""
    folder = document.source.file.rpartition("/")[0].removeprefix("content/")
    for field in document.fields if folder.startswith("topics/") else ():
        for _, name in prose.images(field.text) if field.mark == "prose" else ():
            yield f"{folder}/{name}"


def problems(document: Document[Any], root: Path) -> Iterator[ContentError]:
    """Errors of the images of a file, at most one for each."""
    for field in document.fields:
        for start, name in prose.images(field.text) if field.mark in TEXTS else ():
            if problem := _problem(document.source.file, root, name):
                yield document.error_in(field, start, f"image {name!r}: {problem}")


def _problem(file: str, root: Path, name: str) -> str | None:
    is_by_hand, is_of_topic = file.startswith("content/pages/"), file.endswith("/topic.yml")
    # The texts of other files stand on pages of several folders.
    if is_of_topic or not (is_by_hand or Path(file).match("content/topics/*/*.yml")):
        return "lessons, questions and pages of content/pages show images, and no other text does"
    folder = (root / file).parent
    top = root / "content/pages" if is_by_hand else folder
    path = (folder / name).resolve()
    if not path.is_relative_to(top.resolve()) or path.suffix not in SUFFIXES:
        return f"it lies in {top.relative_to(root).as_posix()}, and is one of {', '.join(SUFFIXES)}"
    if not path.is_file():
        known = [image.name for image in path.parent.glob("*") if image.suffix in SUFFIXES]
        return f"no such file in {folder.relative_to(root).as_posix()}{nearest(name, known)}"
    size = -(-path.stat().st_size // 1000)
    if size > MOST:
        return f"it has {size} kB, and an image may have {MOST}"
    return _why_refused(name, path.read_text("utf-8", "replace")) if path.suffix == ".svg" else None


def _why_refused(name: str, svg: str) -> str | None:
    """Message on an address of a drawing, or a quantity in its words but in labels as rank 0."""
    for mistake in addresses.mistakes(svg, name, svg):
        return str(mistake)
    try:
        elements = ElementTree.fromstring(svg).iter()
        said = [" ".join(one.itertext()) for one in elements if one.tag.endswith(_WORDED)]
    except ElementTree.ParseError as error:
        return f"no SVG: {error}"
    words = _NAMES.sub("", "\n".join(said))
    for stated in (*(word for _, word in numerals(words)), *SPELLED.findall(words)):
        return f"its words state {stated!r}; print it beside the image with {{{{ … }}}}"
    return None
