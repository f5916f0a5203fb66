"""Tables, footnotes, boxes and images of a text, which print raw where a mark is missing.

In: a text without its code and formulas, in which a private-use character begins each expression.
Out: what Markdown would print as it is written, each at a character.
"""

import re
from collections.abc import Iterator

from proofbook.generator.content.addresses import MARKDOWN
from proofbook.generator.content.errors import nearest

BOXES = ("note", "tip", "example", "warning")
NOTE = re.compile(r"(?P<begins>^)?\[\^(?P<name>[^\]\s]+)\](?P<says>:)?", re.MULTILINE)
LINES = "keep its lines, with | behind the key and not >"
_BOX = re.compile(
    r'^ *(?P<mark>!!!|\?\?\?)(?: (?P<kind>\w+)(?: "[^"\n]*")?[ \t]*$)?[^\n]*'
    r"(?P<within>\n(?:[ \t]*\n)*(?P<indent> *)\S)?",
    re.MULTILINE,
)
_DASHES = re.compile(r"(?:^|\|)[ \t]*:?-{2,}:?[ \t]*\|", re.MULTILINE)  # below the head of a table
IMAGE = re.compile(
    r"""!\[(?P<says>[^\]]*)\](?P<at>\((?P<file>[^()\s<>]+)(?:\s+(?:"[^"]*"|'[^']*'))?\))?"""
)


def faults(text: str, coded: str, mark: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, message) for each mistake in images, footnotes, tables and boxes of a text.

    `coded` is the text with its code, in which a bar ends a cell too; a line (`mark`) has no such
    marks, and MkDocs makes the tables of a page.
    """
    lacks = "an image needs its file and words for it: ![what it shows](ring.png)"
    for image in IMAGE.finditer(text):
        if mark == "line":
            yield image.start(), "an image in a line; put it into a text"
        elif not image["at"] or not image["says"].strip():
            yield image.start(), lacks
    yield from _notes(text, mark)
    yield from _tables(text, coded, mark)
    yield from _boxes(text) if mark != "line" else ()


def _notes(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """Footnotes that are named and not written, or written and not named."""
    matches = NOTE.finditer(text)
    notes = [(note, bool(note["says"] and note["begins"] is not None)) for note in matches]
    known = {(note["name"], is_written) for note, is_written in notes}
    for note, is_written in notes:
        if mark == "line":
            yield note.start(), f"a footnote {note[0]!r} in a line; put it into a text"
        elif (note["name"], not is_written) not in known:
            lacks = f"no line begins with [^{note['name']}]: and says the note; {LINES}"
            yield note.start(), f"no text names the note {note[0]!r}" if is_written else lacks


def _tables(text: str, coded: str, mark: str) -> Iterator[tuple[int, str]]:
    """Rows of dashes that head no table, and rows whose last cells would vanish."""
    dashes = list(_DASHES.finditer(text))
    tokens = MARKDOWN.parse(text) if dashes and mark != "line" else []
    tables = [token.map for token in tokens if token.type == "table_open" and token.map]
    lines = (text if mark == "page" else coded).splitlines(keepends=True) if tables else []
    rows = (row.strip().removeprefix("|").removesuffix("|").replace("\\|", "") for row in lines)
    cells = [1 + row.count("|") for row in rows]
    for line, (head, _) in ((at, span) for span in tables for at in range(*span)):
        if cells[line] > cells[head]:
            message = f"{cells[line]} cells below a head of {cells[head]}; a bar in a cell is \\|"
            yield sum(map(len, lines[:line])), message
    for line, match in {text.count("\n", 0, match.end()): match for match in dashes}.items():
        if line not in {head + 1 for head, _ in tables}:
            yield match.start(), f"no table: give each column dashes, right below its head; {LINES}"


def _boxes(text: str) -> Iterator[tuple[int, str]]:
    """Heads of boxes that open none."""
    for box in _BOX.finditer(text):
        indent = len(box[0]) - len(box[0].lstrip(" "))
        if box["mark"] != "!!!" or box["kind"] is None:
            yield box.start("mark"), f'a box begins with a line: !!! note "Its title"; {LINES}'
        elif box["kind"] not in BOXES:
            yield box.start("kind"), f"no box {box['kind']!r}{nearest(box['kind'], BOXES)}"
        elif not box["within"] or len(box["indent"]) < indent + 4:
            yield box.start("mark"), "indent what is in the box by four spaces"
