"""Pages that templates of their own still print."""
# ruff: noqa
# mypy: ignore-errors

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from markupsafe import Markup

from generator.printing.markdown import put_into
from generator.content.book import Book
from generator.content.exhibit import Figure, Listing, Verified
from generator.content.handwritten import split
from generator.content.lesson import CHAINED
from generator.content.quiz import Item, QuizFence
from generator.content.typesetting import unlinked
from generator.printing.markdown import plain
from generator.figures import figures
from generator.figures.play import states as play_states
from generator.pages import views
from generator.pages.elements import figures as figure_elements
from generator.pages.elements import programs as listing
from generator.pages.elements import questions as question
from generator.pages.elements import tables as table_elements
from generator.pages.elements.element import Element, Heading
from generator.pages.environment import environment
from generator.pages.page import Gathered
from generator.pages.sheets import Sheet
from generator.pages.term_links import TermLinks
from generator.pages.view import View
from generator.pages.views import claims
from generator.printing.folio import Folio, escaped_heading

MACROS = ("tables", "programs", "items", "parts")
VARIANTS = "assets/variants"
TERMS = "assets/terms.js"  # sources.js knows it
_LEVEL = re.compile(r"^(##+) ", re.MULTILINE)  # of a heading in Markdown


def _context(sheet: Sheet, folio: Folio, links: TermLinks, gathered: Gathered) -> dict[str, Any]:
    """What templates read and call, beside `views`."""
    topic, depth = sheet.topic, sheet.path.count("/")
    lesson = topic.lessons[sheet.mode].model if topic and sheet.mode else None
    drawn: dict[str, Figure] = {f.id: f for f in getattr(lesson, "figures", [])}
    pictured = topic.labs[sheet.lab].model.figure if topic and sheet.lab else None
    if topic and pictured:
        drawn[topic.figures[pictured].id] = topic.figures[pictured]
    items = topic.items if topic else {}
    titles = {other.id: other.file.title for other in folio.book.topics}
    context: dict[str, Any] = {}
    context |= {
        "views": _views(), "whole": lambda program, rows, is_printed: listing.whole(
            program, [(a, b, links.linked(c)) for a, b, c in rows], is_printed
        ),
        "folio": folio, "book": folio.book, "topic": topic, "root": "../" * depth,
        "ui": folio.ui, "sheet": sheet, "chained": CHAINED, "lesson": lesson, "gathered": gathered,
        "prose": lambda written: links.linked(folio.prose(written)),
        "line": folio.line,
        "linked": links.linked,
        "links": links,
        "figure": lambda name: figures.draw(drawn[name], folio),
        "to_try": lambda name: folio.line(drawn[name].title) if drawn[name].play else "",
        "drawn": lambda figure: figures.draw(play_states.first_alone(figure, folio), folio),
        "in_short": lambda name: question.in_short(items[name], folio),
        "variants": lambda name, kind: question.variants(items[name], folio, kind),
        "question": lambda name, kind: question.question(
            items[name], folio, kind, min(context["headings"].above + 1, 3)
        ),
        "terms_script": lambda: _terms_script(folio),
        "variants_script": lambda html: _variants_script(html, folio),
        "listing": lambda written: listing.listing(written, folio),
        "difference": lambda wrong, right: listing.difference(wrong, right, folio),
        "verdicts": lambda names: claims.verdict_rows(names, folio),
        "proofs": lambda *of: Markup("").join(claims.proofs(
            [name for one in of for name in gathered.claim_groups.get(one, ())],
            gathered.claim_lessons, folio,
        )),
        "topic_title": lambda name: plain(folio.line(titles[name])),
    }  # fmt: skip
    return context


def _views() -> dict[str, Any]:
    return {
        module.name: import_module(f"{views.__name__}.{module.name}")
        for module in iter_modules(views.__path__)
    } | {
        "listing": listing, "question": question, "figure": figure_elements,
        "tables": table_elements,
    }  # fmt: skip


def items_of(fence: QuizFence, book: Book) -> list[Item]:
    """The items that a fence asks, in their order: of any topic, or its own."""
    return [*(book.items[name] for name in fence.names), *fence.items]


def _variants_script(html: Markup, folio: Folio) -> str:
    """Put the variants of a Recall page into a script of their own; its path under the root.

    Only a script can ask them, so the page itself stays that much lighter.
    """
    path = f"{VARIANTS}/{folio.path.removesuffix('.md').replace('/', '-')}.js"
    text = json.dumps(str(html).strip(), ensure_ascii=True)
    folio.loaded.add(path)
    folio.assets[path] = f"proofbook.variants({text});\n".encode()
    return path


def _terms_script(folio: Folio) -> str:
    """Put the definitions of all terms into a script, for popovers; its path under the root."""
    definitions = {
        term.id: [term.term, unlinked(folio.prose(term.definition))] for term in folio.book.terms
    }
    folio.loaded.add(TERMS)
    folio.assets[TERMS] = (
        f"proofbook.terms = {json.dumps(definitions, ensure_ascii=True)};\n".encode()
    )
    return TERMS


def _pieces(
    sheet: Sheet, folio: Folio, headings: Any
) -> Iterator[Markup | Listing | View | list[question.Question]]:
    """What somebody wrote by hand: listings, questions, Markdown with its values as HTML in it."""
    assert sheet.by_hand
    for piece in split(sheet.by_hand):
        if isinstance(piece, QuizFence):
            items = items_of(piece, folio.book)
            yield [question.question(quiz_item, folio, "question") for quiz_item in items]
        elif isinstance(piece, Verified):
            watched = folio.book.verified[piece.path]
            yield View(watched=watched, listing=listing.listing(piece, folio))
        elif isinstance(piece, Listing):
            yield piece
        else:
            headings.above = len([headings.above * "#", *_LEVEL.findall(piece)][-1])
            linked = folio.in_link.expression
            html = put_into(piece, folio.expression, linked, escaped_heading)
            yield Markup(listing.fences_as_listings(html))


WORDS_PER_MINUTE = 180
# What of a page's markup asks for a script. Where answers are kept, proofbook.js comes before any.
OLD_SCRIPTS = {
    "sources": ('data-v="', "<table", 'class="pb-term'),
    "schedule+kinds+question": ('class="pb-item',),
    "pieces": ('class="pb-pieces"', "pb-match", "data-variants="),
    "numbers": ('class="pb-typed"', "data-variants="),
    "asked": ('class="pb-item',),
    "recall": ("data-recall=",),
    "figures": ('class="pb-figure',),
    "player": ("pb-player",),
    "play": ("data-play=",),
    "calculator": ("data-calculator",),
    "home": ("data-survive",),
    "narrow": ("data-narrows",),
    "copies": ("data-copies=",),
    "formulas": ("<math",),
}
# The style sheets that few pages need, each with the patterns of what asks for it, any of these.
OLD_STYLES = {
    "assets/asking.css": ('data-kind="(?!choice|several|number)',),
    "assets/calculator.css": ("data-calculator",),
    "assets/glossary.css": ('class="pb-terms"',),
    "assets/guide.css": ('class="pb-edges"', 'id="technique-'),
    "assets/home.css": ("data-survive",),
    "assets/indexes.css": ('class="pb-ways', 'class="pb-map'),
    "assets/markup.css": ("<math", 'class="(?:admonition|footnote)', "^ *!!! ", r"^\[\^"),
    "assets/play.css": ("pb-states",),
    "assets/recall.css": ("data-recall=",),
    "assets/retracted.css": ("pb-statement",),
    "assets/summary.css": ("pb-summary",),
}
_WORD = re.compile(r"\S*\w\S*")
_NOT_READ = re.compile(
    r"<(?:(pre|svg|style|script|annotation)\b.*?</\1>"
    r'|p class="pb-(?:paper|waits).*?</p>'
    r'|table class="pb-table pb-states.*?</table>'
    r'|details class="pb-details(?: pb-(?:numbers|answer|backing|whole|hint))?".*?</details>)',
    re.DOTALL,
)


def minutes(body: str, num_items: int) -> int:
    """Reading minutes of a page, from its words, questions and figures to operate."""
    text = re.sub(r"<[^>]+>", " ", _NOT_READ.sub(" ", body.replace("<wbr>", "")))
    words = _WORD.findall(text)  # a comma behind a link is none
    return max(1, round(len(words) / WORDS_PER_MINUTE + num_items + body.count("data-play=")))


@dataclass(frozen=True)
class OldBody(Element):
    html: Markup
    headings: list

    def __html__(self) -> str:
        return str(self.html)

    def parts(self):
        yield from ()


def _bodies(content: Any) -> str:
    return "".join(str(part.html) for part in content if isinstance(part, OldBody))


def scripts(content: Any) -> set[str]:
    body = _bodies(content)
    keeps = "data-items=" in body or "data-item=" in body
    return {name for name, marks in OLD_SCRIPTS.items() if any(mark in body for mark in marks)} | (
        {"proofbook"} if keeps else set()
    )


def styles(content: Any) -> set[str]:
    body = _bodies(content)
    return {
        name
        for name, marks in OLD_STYLES.items()
        if any(re.search(pattern, body, re.MULTILINE) for pattern in marks)
    }


def natures(content: Any) -> list[str]:
    return re.findall(r'class="pb-nature">([^<]*)', _bodies(content))


def compose(draft: Any) -> Any:
    sheet, folio = draft.sheet, draft.folio
    context = _context(sheet, folio, draft.links, draft.gathered)
    headings = OldHeadings(draft)
    context["headings"] = headings
    context["heading"] = headings.heading
    context["pieces"] = lambda: _pieces(sheet, folio, headings)
    for name in MACROS:
        context[name] = environment().get_template(f"macros/{name}.j2").make_module(context)
    body = environment().get_template(sheet.kind + ".md.j2").render(context)
    if sheet.text:
        title = escaped_heading(folio.line(sheet.heading))
        headings.read(f"# {title}\n\n{body}")
    yield OldBody(Markup(body), headings.written)


class OldHeadings:
    def __init__(self, draft):
        self.draft, self.written = draft, []

    @property
    def above(self):
        return self.draft._above

    @above.setter
    def above(self, level):
        self.draft._above = level

    def heading(self, *args, **more):
        new = self.draft.heading(*args, **more)
        if new.is_anchored:
            self.written.append(new)
        return new

    def read(self, markdown: str) -> None:
        from markdown import Markdown

        reader = Markdown(extensions=["attr_list", "md_in_html", "toc"])
        reader.convert(markdown)
        for token in (token for title in reader.toc_tokens for token in title["children"]):
            self.written.append(Heading(token["level"], Markup(token["name"]), token["id"]))


def start_page(sheet, gathered):
    from generator.pages.compose import begin

    draft = begin(sheet, gathered)
    context = _context(sheet, draft.folio, draft.links, gathered)
    headings = OldHeadings(draft)
    context["headings"] = headings
    context["heading"] = headings.heading
    for name in MACROS:
        context[name] = environment().get_template(f"macros/{name}.j2").make_module(context)
    return draft.folio, context


def claims_of(content) -> set[str]:
    return set(re.findall(r"#claim-([^\"]+)\"", _bodies(content)))
