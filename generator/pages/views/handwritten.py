"""Pages by hand: their Markdown, which MkDocs reads, and elements in place of their fences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from markdown import Markdown  # type: ignore[import-untyped]
from markupsafe import Markup

from proofbook.generator.content.exhibit import Listing
from proofbook.generator.content.handwritten import KEYS, Fenced, split
from proofbook.generator.content.prose import Formula, slotted
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements import programs
from proofbook.generator.pages.elements.element import Apart, Element, Heading, Made
from proofbook.generator.printing.folio import escaped_heading
from proofbook.generator.printing.markdown import put_into
from proofbook.runners.system.kinds import Fence, Kind, kinds

Parts = Iterator[Element | Markup]


@dataclass(frozen=True)
class WrittenMarkdown(Element):
    """Markdown, with values as HTML in it, that MkDocs turns into HTML."""

    markdown: Markup
    headings: Sequence[Heading] = ()  # of all of the page's
    begins: str = "</details>"  # or nothing, within a fold

    def __html__(self) -> str:
        """As it is."""
        return self.markdown

    def parts(self) -> Iterator[Markup]:
        """Its words, but for those that it folds."""
        folds = f"{self.begins}{self.markdown}".split("<details")
        yield from (Markup(part.partition("</details>")[2]) for part in folds)


def handwritten(draft: Draft) -> Parts:
    """A page by hand; fences of companions may add to its begin and its end."""
    page = draft.sheet.by_hand
    assert page
    own = [_of_kind(word) for word, parts in page.of_kinds().items() if parts]
    for kind, fence in own:
        yield from kind.take(fence.begins)(draft) if fence.begins else ()
    pieces = [part for number, piece in enumerate(split(page), 1)
              for part in _piece(piece, number, draft)]  # fmt: skip
    for kind, fence in own:
        pieces += kind.take(fence.ends)(draft) if fence.ends else ()
    written = (piece.markdown for piece in pieces if isinstance(piece, WrittenMarkdown))
    yield WrittenMarkdown(Markup(), _headings(page.title, "\n\n".join(written)))
    yield from _folded(pieces)
    if "[^" in page.text:
        yield WrittenMarkdown(Markup("\n///Footnotes Go Here///"))  # above the page's foot


def _of_kind(word: str) -> tuple[Kind, Fence]:
    """The kind or companion whose fence a word begins."""
    return next((kind, kind.fences[word]) for kind in kinds() if word in kind.fences)


def _headings(title: str, markdown: str) -> list[Heading]:
    """The headings of level 2 of a page's Markdown, with the anchors that MkDocs gives them."""
    reader = Markdown(extensions=["attr_list", "md_in_html", "toc"])
    reader.convert(f"# {title}\n\n{markdown}")
    return [
        Heading(token["level"], Markup(token["name"]), token["id"])
        for above in reader.toc_tokens for token in above["children"]
    ]  # fmt: skip


def _folded(pieces: Sequence[Element | Markup]) -> Parts:
    """The same, and what is within a fold that begins in other Markdown says so."""
    above = ""
    for part in pieces:
        is_inside = above.count("<details") > above.count("</details>")
        if isinstance(part, WrittenMarkdown):
            above += part.markdown
            yield replace(part, begins="") if is_inside else part
        else:
            yield Apart([part]) if is_inside else part


def _piece(piece: str | Fenced, number: int, draft: Draft) -> Parts:
    folio = draft.folio
    if isinstance(piece, str):
        folio.markup.update(_markup_of(piece))
        html = put_into(piece, folio.expression, folio.in_link.expression, escaped_heading)
        yield WrittenMarkdown(Markup(programs.fences_as_listings(html)))
    elif piece.word not in KEYS:
        kind, fence = _of_kind(piece.word)
        yield from kind.take(fence.elements)(piece.holds, number, draft)
    elif isinstance(piece.holds, Listing):
        listing = draft.program(piece.holds)
        whole = Made("DownloadedProgram", is_read=False, program=listing)
        yield listing if piece.holds.object else whole


def _markup_of(markdown: str) -> Iterator[str]:
    """What a piece of Markdown holds that needs a style sheet or a script."""
    if any(isinstance(slot, Formula) for slot in slotted(markdown)[1].values()):
        yield "formula"
    lines = markdown.splitlines()
    yield from ["admonition"] * any(line.lstrip().startswith("!!! ") for line in lines)
    yield from ["footnote"] * any(line.startswith("[^") for line in lines)
