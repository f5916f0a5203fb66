"""The HTML of a page → its Markdown, which people and language models read; and `llms.txt`.

In: the HTML of an article, whose elements and classes are those of our templates. Out: the same
headings, tables, code and questions, and formulas as LaTeX. The footnote of a number says what it
is and where it comes from (`printing/sources.py`).

What a page closes until a question is answered is not in its Markdown, which links to it; the
search has no word of it either. Nor is there what only a script works.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from textwrap import indent

from proofbook.generator.pages.page import ListedPage, SitePage
from proofbook.generator.printing.folio import interface_words

LLMS = "llms.txt"  # the list of all pages as Markdown, as llmstxt.org has it
TITLES = {"nav": "first", "": "others"}  # of sections without one of their own

VOID = frozenset(("br", "col", "hr", "img", "input", "link", "meta", "wbr"))
VERBATIM = frozenset(("annotation", "code", "pre", "script"))
# Classes and attributes of what is not read: what a script works or shows, and answers.
LEFT_OUT = frozenset((
    "aria-hidden", "hidden", "pb-answer", "pb-budget-set", "pb-contents", "pb-hidden", "pb-hint",
    "pb-limit", "pb-live", "pb-operate", "pb-player", "pb-survive-on",
))  # fmt: skip
UNSAID = ("button", "nav", "output", "script", "select", "style", "template")
BLOCKS = ("aside", "div", "dl", "fieldset", "figure", "form", "ol", "p", "section", "ul")
ESCAPED = str.maketrans({sign: f"\\{sign}" for sign in "\\`*[<$"})


class Passage(str):
    """Markdown in lines of its own."""


class ListEntry(Passage):
    """An entry of a list."""


class CellTexts(list[str]):
    """The cells of a row of a table."""


Pieces = list[str | CellTexts]  # inline Markdown, blocks and rows


@dataclass
class Open:
    """An element that has begun, and the Markdown of what it holds so far."""

    tag: str
    attributes: Mapping[str, str | None]
    pieces: Pieces = field(default_factory=list)
    num_items: int = 0
    is_left_out: bool = False

    def __post_init__(self) -> None:
        """Gather the names that decide about it: of its classes and of its attributes."""
        self.names = frozenset((*self.attributes, *self.get("class").split()))
        self.is_verbatim = self.tag in VERBATIM or "pb-program" in self.names

    def get(self, name: str) -> str:
        """An attribute; empty where it has none."""
        return self.attributes.get(name) or ""

    @property
    def raw(self) -> str:
        """What it holds, as it stands."""
        return "".join(map(str, self.pieces))

    @property
    def blocks(self) -> Pieces:
        """What it holds as blocks, of which inline Markdown between two others is one."""
        blocks, inline = Pieces(), ""
        for piece in (*self.pieces, Passage()):
            if isinstance(piece, Passage):
                lines = "\n".join(map(_beginning_no_list, inline.split("\n"))).strip()
                blocks += filter(None, (Passage(lines), piece))
                inline = ""
            elif isinstance(piece, str):
                inline += piece
        return blocks

    @property
    def line(self) -> str:
        """What it holds in one line."""
        return joined(self.blocks).replace("\n\n", "\n").replace("\n", " · ")


def _beginning_no_list(line: str) -> str:
    """A line with single spaces, whose first word no parser takes for the mark of a list."""
    head, *others = [*filter(None, line.split(" ")), ""]
    if head[:-1].isdigit() and head[-1] in ".)":
        head = f"{head[:-1]}\\{head[-1]}"
    return " ".join((f"\\{head}" if head in ("-", "+", "#") else head, *others)).strip()


def joined(blocks: Iterable[object]) -> str:
    """Blocks with an empty line between each two that are not both entries of a list."""
    text, was_item = "", False
    for block in blocks:
        is_item = isinstance(block, ListEntry)
        text += ("\n" if is_item and was_item else "\n\n") * bool(text) + str(block)
        was_item = is_item
    return text


def words(key: str, **named: str) -> str:
    """Words of the interface, with what is named in them."""
    said: str = interface_words()["markdown"][key]
    return said.format(**named)


def to_markdown(href: str) -> str:
    """The address of a page's Markdown, for that of the page; any other as it is."""
    path, sign, place = href.partition("#")
    is_page = "://" not in path and path.endswith(".html")
    href = f"{path.removesuffix('.html')}.md{sign}{place}" if is_page else href
    return f"<{href}>" if {" ", "("}.intersection(href) else href


def undrawn(html: str) -> str:
    """HTML with the description of each drawing in its place."""
    kept, *drawings = html.replace("<wbr>", "").split("<svg")
    depth = 0
    for drawing in drawings:  # some hold another one
        drawn, *ended = drawing.split("</svg>")
        if not depth and "pb-narrow" not in drawn.partition(">")[0]:  # the same for a phone
            description = drawn.partition("<desc")[2].partition(">")[2].partition("</desc>")[0]
            kept += f"<p>{description}</p>"
        depth += 1 - len(ended)
        kept += "" if depth else ended[-1]
    return kept


class PageMarkdown(HTMLParser):
    """Reads the HTML of a page, and writes its Markdown."""

    def __init__(self, html: str, page: str, footnotes: Sequence[str]) -> None:
        """Read the article of the file `page`, of whose numbers `footnotes` say the sources."""
        super().__init__()
        self.page, self.footnotes = page, footnotes
        self.numbers: dict[int, str] = {}  # each with the address that it leads to
        self.owed: list[str] = []  # footnotes of numbers in code, behind which they stand
        self.num_verbatim = 0  # of the open elements
        self.closed_by = ""  # the question that closes the last closed part
        self.open = [Open("", {})]
        self.feed(undrawn(html))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element; write what one without content says."""
        element, parent = Open(tag, dict(attrs)), self.open[-1]
        if tag not in VOID:
            self.open.append(element)
            self.num_verbatim += element.is_verbatim
        elif tag in ("br", "img"):
            image = f"![{element.get('alt')}]({element.get('src')})"
            parent.pieces.append("\n" if tag == "br" else image)
        elif "pb-number-field" in element.names:
            parent.pieces.append(Passage(f"{element.get('aria-label')}: …"))
        elif element.get("type") == "radio" and element.get("name") != "pick":
            parent.is_left_out = "checked" not in element.names  # a setting not chosen

    def handle_data(self, data: str) -> None:
        """Write text, in which spaces are one and no sign is Markdown, unless it is code."""
        if not self.num_verbatim:
            said = " ".join(data.split()).translate(ESCAPED).replace("\\< ", "< ")
            data = f"{' ' * data[0].isspace()}{said}{' ' * data[-1].isspace()}"
        self.open[-1].pieces.append(data)

    def handle_endtag(self, tag: str) -> None:
        """End an element, and what is still open in it."""
        while self.open[-1].tag == tag or any(element.tag == tag for element in self.open):
            element = self.open.pop()
            self.num_verbatim -= element.is_verbatim
            self.open[-1].pieces += self._written(element)
            if element.tag == tag:
                break

    def _written(self, element: Open) -> Pieces:
        if after := element.get("data-after"):
            self.closed_by = after
            summary = element.blocks[0] if element.tag == "details" else ""
            return [self._closed(str(summary))] if summary else []
        if "pb-waits" in element.names:  # it follows what it stands for
            return [self._closed(element.get("data-what"))]
        if element.is_left_out or LEFT_OUT & element.names:
            return []
        if element.tag == "a":
            return self._link(element)
        rule = None if self.num_verbatim else _rule(element.tag, element.names)
        return rule(self, element) if rule else element.pieces

    def _closed(self, what: str) -> Passage:
        return Passage(words("closed", what=what, link=f"{self.page}#item-{self.closed_by}"))

    def _link(self, element: Open) -> Pieces:
        """A link; of a number the footnote; of a term, and of what links to itself, the words."""
        href, number = element.get("href"), element.get("data-v")
        if number:
            self.numbers.setdefault(int(number), href)
            self.owed.append(f"[^{int(number) + 1}]")
        if self.num_verbatim or not href or href[0] == "#" or "pb-term" in element.names:
            return element.pieces
        if number:
            return [element.line, self.owed.pop()]
        return [f"[{element.line}]({to_markdown(href)})"] if element.line else []

    def code(self, element: Open) -> Pieces:
        """A code span, and the footnotes of the numbers in it."""
        mark, owed = "``" if "`" in element.raw else "`", self.owed
        self.owed = []
        return [f"{mark}{element.raw}{mark}", *owed]

    def item(self, element: Open) -> Pieces:
        """An entry of a list, without a number where it is a choice or says its number itself."""
        parent, text = self.open[-1], joined(element.blocks)
        parent.num_items += 1
        is_numbered = parent.tag == "ol" and "pb-option" not in element.names
        mark = f"{parent.num_items}. " if is_numbered and not text[:1].isdigit() else "- "
        return [ListEntry(mark + indent(text, " " * len(mark)).lstrip())]

    def definition(self, element: Open) -> Pieces:
        """What is said of a term, in the line of the term where it begins with words."""
        first, *others = element.blocks or [""]
        is_words = type(first) is Passage and not first.startswith(("```", "| "))
        return [f"{first}\n" if is_words else first, *others]

    def fold(self, element: Open) -> Pieces:
        """A fold, but for those of the glossary, which link all lessons with a term."""
        return [] if any("pb-terms" in outer.names for outer in self.open) else element.blocks

    def question(self, element: Open) -> Pieces:
        """A question, and where its answer is."""
        place = element.get("id")
        link = f"{self.page}#{place}" if place else self.page
        return [*element.blocks, Passage(words("answer", link=link))]

    def table(self, element: Open) -> Pieces:
        """A table; one in a cell as its cells."""
        rows = [piece for piece in element.pieces if isinstance(piece, CellTexts)]
        if any(outer.tag == "td" for outer in self.open):
            return ["; ".join(", ".join(row) for row in rows)]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines[1:1] = ["|" + " --- |" * len(row) for row in rows[:1]]
        return [*element.blocks, Passage("\n".join(lines))]

    def text(self, about: str, of_numbers: str) -> str:
        """The page: its title, what it is `about`, what it says, and the footnotes."""
        title, *others = self.open[0].blocks or [""]  # a page by hand may be empty
        body, notes = joined(others), []
        for number, href in sorted(self.numbers.items()):
            if f"[^{number + 1}]" in body:  # and not only in what is left out
                said = self.footnotes[number] or words("stated", link=to_markdown(href))
                notes.append(f"[^{number + 1}]: {said}")
        about = f"> {about} {of_numbers}" if notes else f"> {about}"
        return "\n\n".join(filter(None, [str(title), about, body, "\n".join(notes)])) + "\n"


Rule = Callable[[PageMarkdown, Open], Pieces]


def _block(form: str) -> Rule:
    """One line in a block of some form."""
    return lambda _, element: [Passage(form.format(element.line))]


def _marked(mark: str) -> Rule:
    """One line between marks, unless it has some already."""
    return lambda _, element: [
        element.line if not element.line or mark in element.line else f"{mark}{element.line}{mark}"
    ]


def _fenced(_: PageMarkdown, element: Open) -> Pieces:
    fence = "````" if "```" in element.raw else "```"
    return [Passage("\n".join((fence, element.raw.strip("\n"), fence)))]


# What stands for an element, by its tag and one of its names or by its tag; else what it holds.
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(UNSAID, lambda *_: []),
    **dict.fromkeys(BLOCKS, lambda _, element: element.blocks),
    **dict.fromkeys(("b", "strong"), _marked("**")),
    **dict.fromkeys(("em", "i"), _marked("*")),
    **dict.fromkeys(("pre", "div.pb-program"), _fenced),
    **dict.fromkeys(("li", "div.pb-option"), PageMarkdown.item),
    **dict.fromkeys(("div.pb-question", "section.data-survive"), PageMarkdown.question),
    **{f"h{level}": _block("#" * level + " {}") for level in range(1, 7)},
    **dict.fromkeys(("td", "th"), lambda _, element: [Passage(element.line.replace("|", "\\|"))]),
    "blockquote": lambda _, element: [Passage(indent(joined(element.blocks), "> ", bool))],
    "caption": _block("{}"),
    "code": PageMarkdown.code,
    "dd": PageMarkdown.definition,
    "details": PageMarkdown.fold,
    # Without what came of it.
    "div.pb-row": lambda _, element: [ListEntry(f"- {element.blocks[0]}")],
    "dt": lambda _, element: [f"**{element.line}**: "],
    "figcaption": _block("**Figure: {}**"),
    "legend.data-changed": lambda _, element: [f"{element.line}: "],
    "math": lambda _, element: [f"${element.raw}$"],
    "math.display": lambda _, element: [Passage(f"$$\n{element.raw}\n$$")],
    "semantics": lambda _, element: element.pieces[-1:],  # the annotation, in LaTeX
    "span.pb-eyebrow": lambda page, element: [
        (Passage if page.open[-1].tag == "legend" else str)(*_marked("**")(page, element))
    ],
    "span.pb-stem": _block("{}"),
    "summary": lambda page, element: [Passage(*_marked("**")(page, element))],
    "sup": lambda _, element: [f"^{element.line}"],
    "table": PageMarkdown.table,
    "tr": lambda _, element: [
        CellTexts(piece for piece in element.pieces if isinstance(piece, Passage))
    ],
}


@cache
def _rule(tag: str, names: frozenset[str]) -> Rule | None:
    named = (RULES.get(f"{tag}.{name}") for name in sorted(names))
    return next(filter(None, named), RULES.get(tag))


def twin(page: SitePage) -> tuple[str, str]:
    """The path and the text of a page's Markdown."""
    here = PageMarkdown(page.html, page.path.rpartition("/")[2], page.footnotes)
    links = {"index": f"{'../' * page.path.count('/')}{LLMS}", "page": here.page}
    about = words("about", site=page.site, **links)
    text = here.text(about, words("numbers", command=page.command))
    return page.path.removesuffix(".html") + ".md", text


def llms_txt(name: str, says: str, sections: Mapping[str, Sequence[ListedPage]]) -> tuple[str, str]:
    """The list of a site's pages as https://llmstxt.org has it: its name, its law, sections.

    The pages of the nav are those of `nav`, and those of no section have no title.
    """
    listed = []
    for section, pages in sections.items():
        title = words(TITLES[section]) if section in TITLES else section
        lines = [
            f"- [{page.title}]({to_markdown(page.path)}){f': {page.about}' if page.about else ''}"
            for page in pages
        ]
        listed.append("\n".join((f"## {title}\n", *lines)))
    head = f"# {name}", f"> {says} {words('law')}", words("read")
    return LLMS, "\n\n".join((*head, *listed)) + "\n"
