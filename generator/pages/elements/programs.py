"""Code shown from the file that a run executed: in colours, with what that run printed.

In: listings, as authors name them. Out: the code as HTML, what it printed, notes on its lines, and
the lines in which a corrected program differs from a wrong one.
"""

import difflib
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from markupsafe import Markup, escape
from pygments.lexers import PythonLexer  # type: ignore[import-untyped]
from pygments.token import STANDARD_TYPES, _TokenType  # type: ignore[import-untyped]

from proofbook.generator.content.exhibit import ExplainedProgram, Listing
from proofbook.generator.content.listed_code import anonymized, download_path, listed
from proofbook.generator.pages.elements.element import Element, Made
from proofbook.generator.printing.folio import Folio, breakable
from proofbook.generator.printing.markdown import LISTING, Text, in_lines, parted
from proofbook.runners.core.trace.records import Failure

# Keywords, strings, comments, numbers, and the names of what is defined. All else has the colour
# of the text: an element for each name and bracket made a third of a page.
_COLOURED = ("k", "s", "c", "m")
_NAMES = frozenset({"nf", "fm", "nc", "nd", "ne", "ow"})
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Before a name that follows a dot or a bracket; a file keeps its ending.
_JOINT = re.compile(r"(?<=[\w)][.(])(?=[A-Za-z_])(?!py\b)")
_NAME = re.compile(r"\w+")
WHOLE = 29  # letters of a name that stays whole in a line of code
KEPT = 300  # characters that a rank keeps of a message: runners/core/ranks/process.py
MARKED = {
    mark: Markup(html)
    for mark, html in {" ": "  {}\n", "-": "<del>- {}</del>\n", "+": "<ins>+ {}</ins>\n"}.items()
}
CONTEXT = 2  # lines around those that differ
MOST = 20  # lines that differ; beyond, two programs are easier to read than their difference


@dataclass(frozen=True)
class RunOutput(Element):
    """What a run printed, and how it ended."""

    run: str | None  # its path
    link: Markup  # to its row
    status: str
    message: str
    printed: str

    @property
    def text(self) -> str:
        """What it printed, then the message of its failure."""
        return "\n".join(filter(None, [self.printed, self.message]))

    @property
    def ended(self) -> str:
        """How it ended, in words."""
        is_silent = self.status != "skipped" and not self.text
        return f"{self.status}{', without output' * is_silent}"


@dataclass(frozen=True)
class PrintedText(Element):
    """Lines that a program printed."""

    text: str


@dataclass(frozen=True)
class Command(Element):
    """A command for a terminal."""

    command: str


@dataclass(frozen=True)
class ListedProgram(Element):
    """A program in colours, with what its run printed; it prints its title and its code."""

    title: Markup
    path: str
    code: Markup
    num_lines: int
    file: str  # the address of its download, if it has one
    output: RunOutput
    num_folded: int = 0  # of its lines, the last, which only check and print

    def parts(self) -> Iterator[Element | Markup]:
        """Its title; code is no text."""
        yield self.title


@dataclass(frozen=True)
class WholeProgram(Element):
    """A whole program, closed; explained line by line where it has notes."""

    is_found = False
    program: ListedProgram
    notes: Made | None = None
    is_printed: bool = False  # on paper, which may leave out others

    @property
    def is_read(self) -> bool:
        """Whether a lesson explains it."""
        return self.notes is not None


def listing(written: Listing, folio: Folio, is_asked: bool = False) -> ListedProgram:
    """A listing: coloured code, and what its run printed; a question hides the file's name."""
    code = (anonymized if is_asked else listed)(folio.book.root, written.path, written.object)
    file = None if written.object else download_path(written.path)
    lines = [line.strip() for line in code.splitlines()]
    end = written.reports_from if isinstance(written, ExplainedProgram) else None
    return ListedProgram(
        title=folio.line(written.title),
        path=written.path,
        code=highlighted(code),
        num_lines=len(lines),
        file=folio.root + file if file else "",
        output=printed(written.run, folio),
        num_folded=len(lines) - lines.index(end.strip()) if end else 0,
    )


def printed(path: str | None, folio: Folio) -> RunOutput:
    """What the run at a path printed; `skipped` where there is none."""
    run = folio.run(path) if path else None
    return RunOutput(
        run=path,
        link=run_link(path, folio) if path else Markup(),
        status=run.status.replace("_", " ") if run else "skipped",
        message=error_message(run.error) if run and run.error else "",
        printed="\n".join(run.printed) if run else "",
    )


def run_link(path: str, folio: Folio) -> Markup:
    """The name of a run as a link to its row."""
    link = Markup('<a class="pb-run-name" href="{}{}"><code>{}</code></a>')
    return link.format(folio.root, folio.place_of(path), breakable(path))


def error_message(failure: Failure) -> str:
    """The error message of a failed run, cut after whole sentences; empty if the program hung."""
    if failure.kind == "hang" and failure.phase == "program":
        return ""  # where it hung, only its source says
    if len(failure.message) < KEPT:
        return failure.message
    return f"{failure.message[: failure.message.rfind('. ') + 1 or KEPT]} …"


def notes(program: ExplainedProgram, folio: Folio, linked: Callable[[Text], Markup]) -> Made:
    """Lines of a program, each with its number from 1 and what it does, the terms `linked`."""
    text = listed(folio.book.root, program.path, program.object)
    lines = [line.strip() for line in text.splitlines()]
    codes = [note.code.strip() for note in program.walkthrough]
    coloured = (highlighted(code).strip() for code in codes)
    words = [folio.line(note.says) for note in program.walkthrough]
    numbers = (1 + lines.index(code) for code in codes)
    rows = [*zip(numbers, coloured, map(linked, words), strict=True)]
    return Made("Notes", rows=rows, visible=[(Markup(f"line {n}"), *row) for n, *row in rows])


# --- Python in colours, with an element only where the colour changes


def highlighted(code: str) -> Markup:
    """Python code in colours, as HTML for a `<code>` under `.highlight`."""
    return Markup("\n").join(highlighted_lines(code))


@lru_cache(maxsize=1024)
def highlighted_lines(code: str) -> tuple[Markup, ...]:
    """Python code in colours, line by line: no element continues in the next line.

    With places where a narrow page may break a line.
    """
    coloured = ""
    for css, tokens in groupby(PythonLexer().get_tokens(code), lambda token: _colour(token[0])):
        span = f'<span class="{css}">{{}}</span>' if css else "{}"
        lines = map(_breakable, "".join(text for _, text in tokens).split("\n"))
        coloured += "\n".join(span.format(line) if line else "" for line in lines)
    return tuple(map(Markup, coloured.split("\n")))


def _colour(kind: _TokenType) -> str:
    name: str = STANDARD_TYPES[kind]
    return name if name.startswith(_COLOURED) or name in _NAMES else ""


def _breakable(code: str) -> str:
    pieces = _JOINT.split(html.escape(code, quote=False))
    return "<wbr>".join(_NAME.sub(lambda name: parted([name[0]], WHOLE), piece) for piece in pieces)


def fences_as_listings(markdown: str) -> str:
    """Markdown whose fenced code became HTML listings, in colours if it is Python or its `diff`."""

    def fenced(fence: re.Match[str]) -> str:
        coloured = {"python": highlighted, "diff": _changed}.get(fence[1])
        code = coloured(fence[2]) if coloured else escape(fence[2])
        box = Markup(f'<div class="highlight">{LISTING}</div>')
        css = " pb-diff no-copy" * (fence[1] == "diff")
        return Markup('<div class="pb-listing{}">{}</div>').format(css, box.format(in_lines(code)))

    return _FENCE.sub(fenced, markdown)


def _changed(diff: str) -> Markup:
    """Lines of Python behind two characters, of which the first is a space, + or -, in colours."""
    lines = diff.splitlines()
    coloured = highlighted_lines("\n".join(line[2:] for line in lines))
    return Markup("").join(
        MARKED[line[:1] or " "].format(code) for line, code in zip(lines, coloured, strict=False)
    )


# --- a corrected program beside a wrong one


def difference(wrong: Listing, right: Listing, folio: Folio) -> Made:
    """Both programs, and their unified diff, which it prints; empty where most lines differ."""
    before, after = (listed(folio.book.root, code.path, code.object) for code in (wrong, right))
    programs = {"wrong": listing(wrong, folio), "right": listing(right, folio)}
    lines = unified(before, after)
    return Made("Difference", **programs, lines=lines, is_found=False, is_read=False)


def unified(wrong: str, right: str) -> Markup:
    """HTML of a unified diff of two source texts, ignoring indents; empty beyond `MOST` lines."""
    begins, before, stripped_before = _body(wrong)
    _, after, stripped_after = _body(right)
    matcher = difflib.SequenceMatcher(None, stripped_before, stripped_after, autojunk=False)
    lines, num_different = list[Markup](), 0
    for group in matcher.get_grouped_opcodes(CONTEXT):
        hunk = list[Markup]()
        for tag, start, end, first, last in group:
            same = tag == "equal"  # such lines are as the right program has them
            hunk += [] if same else map(MARKED["-"].format, before[start:end])
            hunk += map(MARKED[" " if same else "+"].format, after[first:last])
            num_different += 0 if same else end - start + last - first
        number = Markup("<small>line {}</small>\n").format(begins + group[0][1])
        lines.append(number + Markup("").join(hunk))
    return Markup("").join(lines) if num_different <= MOST else Markup()


def _body(code: str) -> tuple[int, list[Markup], list[str]]:
    """The first line's number, the lines in colours, and without indents, below the docstring."""
    start = 1 + code.partition('"""')[2].partition('"""')[0].count("\n")
    start *= code.startswith('"""')
    stripped = [line.strip() for line in code.splitlines()]
    return 1 + start, [*highlighted_lines(code)[start:]], stripped[start:]
