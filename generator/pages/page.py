"""One page: a `Sheet`, which says what it is made from, → Markdown. Pure.

Each page is a template of its own over the shared frame. Its body is HTML, so that no Markdown
builder changes it; only what somebody wrote by hand stays Markdown. Code that pages show is read
from the files that runs executed.
"""

import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from generator.content.book import Book, Topic
from generator.content.chain import DeepPage, chain
from generator.content.exhibit import Figure, Listing, Verified
from generator.content.handwritten import HandWritten, split
from generator.content.lesson import CHAINED, DeepFile, Mode
from generator.content.quiz import Item, QuizFence
from generator.figures import figures
from generator.figures.play import states as play_states
from generator.pages import views
from generator.pages.headings import Heading, Headings
from generator.pages.term_links import TermLinks
from generator.pages.view import View, counted, label
from generator.pages.views import claims, frame, listing, question, ways
from generator.printing.folio import Folio, breakable, escaped_heading
from generator.printing.markdown import links_of, plain, put_into, unlinked
from generator.printing.sources import moment
from generator.values.evaluation import Evidence
from generator.values.filters import calls_of_claims
from generator.values.machines import OtherOutcomes

TEMPLATES = Path(__file__).parent / "templates"
DESCRIPTION_LENGTH = 180
# What templates call by these names without an import; each may call those before it.
MACROS = ("tables", "programs", "forms", "items", "parts", "watched")
VARIANTS = "assets/variants"
TERMS = "assets/terms.js"  # sources.js knows it
# These name each machine beside its numbers.
OF_MACHINES = ("runs.md.j2", "machine.md.j2", "evidence.md.j2")
# The feet of these name no machine.
UNMEASURED = (*OF_MACHINES, "glossary.md.j2", "lab.md.j2", "watched.md.j2")
# Keys of a chain whose texts stand on the page that lists its parts.
LISTED_WITH = frozenset({"introduction", "overview", "mental_model", "concept", "takeaways"})
_TO_CLAIM = re.compile(r"#claim-([^\"]+)\"")
_LEVEL = re.compile(r"^(##+) ", re.MULTILINE)  # of a heading in Markdown
_CODE = re.compile(r"`([^`]+)`")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The Jinja environment of the templates: autoescaped, strict, with filters and `views`."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "plain": plain, "breakable": breakable, "moment": moment, "with_code": with_code,
        "unbroken": unbroken, "unopened": question.unopened, "counted": counted,
        "unlinked": unlinked,
    }  # fmt: skip
    made.globals["views"] = {
        module.name: import_module(f"{views.__name__}.{module.name}")
        for module in iter_modules(views.__path__)
    }
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return made


def unbroken(name: str) -> Markup:
    """A name in which no line ends, at none of its hyphens."""
    return Markup('<span class="pb-keep">{}</span>').format(name)


def with_code(reason: str) -> Markup:
    """A reason why a run was skipped, with its backticks turned into code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(reason))))


@dataclass(frozen=True)
class Sheet:
    """What one page is, before it is printed."""

    path: str  # under the site's root
    template: str  # of its body; the frame is shared
    heading: str  # its title, an author's line; of what runs measured, plain text
    about: str  # for search engines and previews
    source: str | None = None  # the file that an author edits
    topic: Topic | None = None
    mode: Mode | None = None  # of a lesson
    part: DeepPage | None = None  # of the chain of Deep
    lab: str | None = None  # its name, on the page of a lab
    text: str = ""  # the Markdown of a page by hand
    by_hand: HandWritten | None = None  # such a page, with the listings and quizzes of its fences
    machine: str | None = None  # on the page of one machine
    experiment: str | None = None  # on the page of one experiment's runs
    symptom: str | None = None  # the id of one, on its page of the guide
    watched: str | None = None  # a script that `verify` watched, on its page
    has_toc: bool = False
    under: str | None = None  # its page in the header, where that is not its folder's index
    # Where it shows the reference machine, the experiments to measure before it does not.
    lacks: Sequence[str] | None = None


@dataclass(frozen=True)
class Printed:
    """A page as it is written to disk, and what other pages show of it."""

    content: bytes
    minutes: int  # that reading it takes
    headings: Sequence[Heading] = ()  # the title first
    terms: frozenset[str] = frozenset()  # of the glossary, that its prose uses
    assets: Mapping[str, bytes] = field(default_factory=dict)  # that only it loads, by path


@dataclass
class Gathered:
    """What pages say of claims and of lessons; pages that others list are printed first."""

    evidence: Evidence  # of the machine at hand
    others: Mapping[str, OtherOutcomes]  # of the other machines
    pages: Mapping[str, Printed]  # those that are printed, by path

    @cached_property
    def minutes(self) -> dict[str, int]:
        """Reading minutes of each lesson, by the path of its first page."""
        return {path: sum(page.minutes for page in pages) for path, pages in self._lessons.items()}

    @cached_property
    def _lessons(self) -> dict[str, list[Printed]]:
        """The pages of each lesson, by the path of its first; a page by hand is one."""
        lessons = defaultdict(list)
        for path, page in self.pages.items():
            folder, _, name = path.rpartition("/")
            mode = name.removesuffix(".md").partition("-")[0]
            lessons[f"{folder}/{mode}.md" if mode in CHAINED else path].append(page)
        return lessons

    @cached_property
    def used_in(self) -> dict[str, list[str]]:
        """By the id of each term of the glossary, the paths of the lessons that use it."""
        lessons = defaultdict(list)
        for path, pages in self._lessons.items():
            for term in frozenset[str]().union(*(page.terms for page in pages)):
                lessons[term].append(path)
        return lessons

    @cached_property
    def claim_groups(self) -> dict[str, list[str]]:
        """Claims by the experiment that they rest on, in the order of authors."""
        groups = defaultdict(list)
        for name, outcome in self.evidence.judged_claims.items():
            groups[outcome.experiment].append(name)
        return dict(sorted(groups.items()))

    @cached_property
    def claim_lessons(self) -> dict[str, list[tuple[str, str]]]:
        """By claim, pairs of topic and mode: the lessons, except Recall, that name or link it."""
        lessons: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for topic in self.evidence.book.topics:
            for mode in (name for name in topic.lessons if name != "recall"):
                pages = self._lessons.get(f"topics/{topic.id}/{mode}.md", ())
                linked = (at for page in pages for at in _TO_CLAIM.findall(page.content.decode()))
                texts = (field.text for field in topic.lessons[mode].fields)
                named = (claim for text in texts for _, claim in calls_of_claims(text))
                for claim in {*linked, *named}:
                    lessons[claim].append((topic.id, mode))
        return lessons

    def sections(self, lesson: str) -> dict[str, str]:
        """By a heading's text, its address in a lesson (`topic/mode`); empty if not printed."""
        pages = {
            path: page for path, page in self.pages.items()
            if path == f"topics/{lesson}.md" or path.startswith(f"topics/{lesson}-")
        }  # fmt: skip
        return {
            heading.text: path.replace(".md", f".html#{heading.anchor}")
            for path, page in pages.items() for heading in reversed(page.headings)
        }  # fmt: skip


def printed(sheet: Sheet, gathered: Gathered) -> Printed:
    """`Printed`: a sheet's template in the frame, as bytes; minutes, headings, terms, assets."""
    depth, at_hand = sheet.path.count("/"), gathered.evidence
    folio, context = start_page(sheet, gathered)
    book, topic, headings = folio.book, sheet.topic, context["headings"]
    body = _rendered(sheet.template, context)
    is_recorded = sheet.experiment or sheet.machine or sheet.watched
    title = (label if is_recorded else folio.line)(sheet.heading)
    if sheet.text:
        title = escaped_heading(title)
        headings.read(f"# {title}\n\n{body}")
    row = ways.ways(topic, sheet.mode, folio) if topic else []
    way = ways.rail(sheet.path, topic, row, folio)
    origins = frame.origins(folio, depth)
    # What a trace says is text: no expression, no Markdown.
    about = (label if sheet.template in OF_MACHINES[:2] else folio.line)(sheet.about)
    # A sitting of Recall takes as long as what is due that day.
    minutes = 0 if sheet.mode == "recall" else frame.minutes(body, len(folio.items))
    content = _rendered(
        "page.md.j2",
        context,
        body=Markup(body),
        ways=row,
        rail=way,
        contents=headings.contents() if sheet.has_toc or sheet.mode else [],
        styles=frame.styles(body),
        minutes=minutes,
        # A summary gives away results, and ticks off nothing.
        scripts=frame.scripts(
            body, has_ways=bool(row or way) and sheet.template != "summary.md.j2"
        ),
        origins=origins,
        machines=None if sheet.template in UNMEASURED else frame.machines(origins, book),
        machine_at_hand=at_hand.book.machine.name,
        surprises=frame.surprises(folio),
        natures=frame.natures(folio, body),
        boost=frame.BOOSTS.get(sheet.template.removesuffix(".md.j2"), 1.0),
        title=title,
        description=textwrap.shorten(plain(about), DESCRIPTION_LENGTH, placeholder="…"),
    )
    # A summary draws the first state of a figure and loads none of the others.
    loaded = {path: asset for path, asset in folio.assets.items() if path in content}
    terms = frozenset(context["links"].used)
    return Printed(content.encode(), minutes, headings.written, terms, loaded)


def start_page(sheet: Sheet, gathered: Gathered) -> tuple[Folio, dict[str, Any]]:
    """Pair: a new `Folio` for a sheet, and its template's context: names, functions, macros."""
    depth, at_hand = sheet.path.count("/"), gathered.evidence
    evidence = (sheet.lacks is not None and at_hand.reference) or at_hand
    folio = Folio(
        evidence, at_hand, gathered.others, sheet.path,
        marks_reference=not evidence.book.is_reference and sheet.template not in OF_MACHINES,
    )  # fmt: skip
    terms = folio.book.terms if sheet.mode not in (None, "recall") else ()
    links = TermLinks(terms, "../" * depth, _num_links(sheet))
    context = _context(sheet, folio, links, gathered)
    context["headings"] = headings = Headings()
    context["heading"] = headings.heading
    context["pieces"] = lambda: _pieces(sheet, folio, headings)
    for name in MACROS:
        context[name] = environment().get_template(f"macros/{name}.j2").make_module(context)
    return folio, context


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
    return {
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
        "question": lambda name, kind: question.question(items[name], folio, kind),
        "terms_script": lambda: _terms_script(folio),
        "variants_script": lambda html: _variants_script(html, folio),
        "listing": lambda written: listing.listing(written, folio),
        "difference": lambda wrong, right: listing.difference(wrong, right, folio),
        "verdicts": lambda names: claims.verdict_rows(names, folio),
        "proofs_of": lambda of=sheet.experiment or "": claims.proofs_of(
            gathered.claim_groups.get(of, ()), gathered.claim_lessons, folio
        ),
        "topic_title": lambda name: plain(folio.line(titles[name])),
    }  # fmt: skip


def _num_links(sheet: Sheet) -> int:
    """The links of a page that lists the parts of a chain; no other page has so many."""
    deep = sheet.topic.lessons.get("deep") if sheet.topic else None
    if sheet.template != "deep.md.j2" or not deep or not isinstance(deep.model, DeepFile):
        return 0
    texts = (field.text for field in deep.fields if LISTED_WITH.intersection(map(str, field.path)))
    listed = sum(1 + len(part.places) for part in chain(deep.model))
    return listed + sum(len(links_of(text)) for text in texts)


def items_of(fence: QuizFence, book: Book) -> list[Item]:
    """The items that a fence asks, in their order: of any topic, or its own."""
    return [*(book.items[name] for name in fence.names), *fence.items]


def _rendered(template: str, context: Mapping[str, Any], **more: object) -> str:
    """A template's text, with what a run printed and nobody would see spelled out."""
    text = environment().get_template(template).render(context, **more)
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _variants_script(html: Markup, folio: Folio) -> str:
    """Put the variants of a Recall page into a script of their own; its path under the root.

    Only a script can ask them, so the page itself stays that much lighter.
    """
    path = f"{VARIANTS}/{folio.path.removesuffix('.md').replace('/', '-')}.js"
    text = json.dumps(html.strip(), ensure_ascii=True)
    folio.assets[path] = f"proofbook.variants({text});\n".encode()
    return path


def _terms_script(folio: Folio) -> str:
    """Put the definitions of all terms into a script, for popovers; its path under the root."""
    definitions = {
        term.id: [term.term, unlinked(folio.prose(term.definition))] for term in folio.book.terms
    }
    folio.assets[TERMS] = (
        f"proofbook.terms = {json.dumps(definitions, ensure_ascii=True)};\n".encode()
    )
    return TERMS


def _pieces(
    sheet: Sheet, folio: Folio, headings: Headings
) -> Iterator[Markup | Listing | View | list[View]]:
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
