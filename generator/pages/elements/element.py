"""What a page is made of: typed elements in the order of the page.

A page is composed of elements (`draft.py`, the modules of its kind), and each prints itself by the
macro of its name, in `templates/elements` or in the `elements.j2` of a kind, which reads its fields
and changes nothing. One that is made at one place, and does no more, is `Made` without a class.
What else is asked of a page (its headings, questions, scripts, minutes, what the search finds) is
read off its elements and never off its HTML (`facts.py`). A field is `Markup` where it holds words
that readers see, and `str` where it is an address, an id or a class.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any, ClassVar

from markupsafe import Markup

from proofbook.generator.pages.environment import macros

Content = Sequence["Element | Markup"]  # in the order of the page


@dataclass(frozen=True, eq=False)
class Element:
    """A piece of a page."""

    ASKS: ClassVar[bool] = False  # a question

    @property
    def is_found(self) -> bool:
        """Whether the search shows it; else it tells an answer, or is no text."""
        return True

    @property
    def is_read(self) -> bool:
        """Whether its words count as read; else it is folded, or operated."""
        return True

    @property
    def headings(self) -> Sequence["Heading"]:
        """Those that it has itself, which a page's list of contents names."""
        return ()

    @property
    def needs(self) -> frozenset[str]:
        """What decides which scripts and styles it takes: names of its class and its bases."""
        return frozenset(kind.__name__ for kind in type(self).__mro__)

    @property
    def entry(self) -> tuple[str, Markup] | None:
        """Its own entry of the search, as an anchor and a title; for most none."""
        return None

    def __html__(self) -> str:
        """The HTML that the macro of its class's name prints."""
        return str(macros()[type(self).__name__.lower()](self))

    def parts(self) -> Iterator["Element | Markup"]:
        """Yield what readers see of it, in the order of the page: elements and words."""
        for field in fields(self):
            yield from _parts_of(getattr(self, field.name))


def _parts_of(content: object) -> Iterator["Element | Markup"]:
    if isinstance(content, Element | Markup):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            yield from _parts_of(part)


def walk(content: object) -> Iterator[Element]:
    """Yield the elements of some content and all within them, in the order of the page."""
    for part in _parts_of(content):
        if isinstance(part, Element):
            yield part
            yield from walk([*part.parts()])


class Made(Element):
    """An element without a class, as `Made("Terms", script=…)`: it has the fields that are named.

    The macro `terms` prints it, or the macro of the element around it reads these fields. `visible`
    is what readers see of it where that is not all fields.
    """

    is_found = is_read = True
    headings: Sequence["Heading"] = ()
    visible: Content | None = None

    def __init__(self, macro: str, /, **fields: Any) -> None:
        vars(self).update(fields, macro=macro)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 it has any field
        raise AttributeError(name)

    @property
    def needs(self) -> frozenset[str]:
        """The name of its macro, as that of a class."""
        return frozenset({vars(self)["macro"]})

    def __html__(self) -> str:
        """What the macro prints."""
        return str(macros()[vars(self)["macro"].lower()](self))

    def parts(self) -> Iterator["Element | Markup"]:
        """Yield what readers see of it, or of all fields in the order in which they are named."""
        yield from _parts_of([*vars(self).values()] if self.visible is None else self.visible)


def worded(macro: str, /, **fields: Any) -> Markup:
    """Words that stand in a macro, of which readers see all that it prints."""
    return Markup(Made(macro, **fields))


# --- what any page is made of

_ASIDE = ("pb-numbers", "pb-answer", "pb-backing", "pb-whole", "pb-hint")  # folds beside the text


@dataclass(frozen=True)
class Heading(Element):
    """A heading; below level 1 a link to itself."""

    level: int
    html: Markup
    anchor: str
    number: int | None = None
    css: str = ""
    is_listed: bool = True  # otherwise lists leave it out, and the search takes it for text
    is_anchored: bool = True  # by its own words; another anchor is no place of a list

    @property
    def headings(self) -> Sequence["Heading"]:
        """Itself, if a list may name it."""
        return [self] if self.is_anchored else []

    @property
    def is_link(self) -> bool:
        """Whether its words are a link to it, as links do not nest."""
        return self.level > 1 and "<a " not in self.html

    @property
    def text(self) -> str:
        """Its words without the number, as authors name the section."""
        return self.html.striptags()

    @property
    def words(self) -> Markup:
        """Its number and its words, as lists show them."""
        words = f"{self.number} {self.text}" if self.number else self.text
        return Markup(escape(words, quote=False))


@dataclass(frozen=True)
class Block(Element):
    """Content in an element of its own."""

    content: Content
    css: str = ""
    tag: str = "div"
    is_found: bool = True


@dataclass(frozen=True)
class Fold(Element):
    """Content that a reader opens; with `after`, the answer to that question opens it."""

    summary: Markup
    content: Content
    css: str = ""
    after: str = ""
    anchor: str = ""
    is_found: bool = False
    group: str = ""  # of folds, of which one at a time is open
    is_open: bool = False

    @property
    def is_read(self) -> bool:
        """Whether readers open it on their way: what an answer opens, and not what is beside it."""
        return bool(self.css) and not self.css.startswith(_ASIDE)


@dataclass(frozen=True)
class Apart(Element):
    """Content that an element prints where it is neither found nor read on the way."""

    is_found = is_read = False
    content: Content


@dataclass(frozen=True)
class Waiting(Element):
    """Content that waits for the answer to a question, and meanwhile `what` is there."""

    is_found = False
    question: str
    what: str
    content: Content


@dataclass(frozen=True)
class ListOfLines(Element):
    """Lines as a list."""

    lines: Sequence[Markup]
    tag: str = "ul"
    css: str = ""
    line_css: str = ""
    is_found: bool = True


@dataclass(frozen=True)
class Drawing(Element):
    """A drawing, whose words stand beside it as well."""

    svg: Markup

    def parts(self) -> Iterator[Element | Markup]:
        """Nothing."""
        yield from ()


@dataclass(frozen=True)
class Aside(Element):
    """A paragraph beside the text."""

    words: Markup
    css: str = "pb-aside"
    is_found: bool = True


def narrowing(label: Markup, entries: str, called: str) -> Element:
    """A field that leaves `entries`, a CSS selector, with the words typed into it."""
    return Made("NarrowingField", label=label, entries=entries, called=called, is_found=False)


@dataclass(frozen=True)
class Facts(Element):
    """Facts, each behind the words that name it."""

    rows: Sequence[tuple[Markup, Markup | Sequence[Markup]]]
    css: str = ""  # of these words
    is_found: bool = True
