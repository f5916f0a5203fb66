"""A `Sheet`, which says what a page is made from, → the page. Pure.

A page's content is composed of elements, what stands around it is added, and its facts are read off
both before they are printed. All of it is HTML, so that no Markdown builder changes it; only what
somebody wrote by hand stays Markdown. Code that pages show is read from the files that runs
executed.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence

from markupsafe import Markup

from proofbook.generator.content.chain import chain
from proofbook.generator.content.lesson import DeepFile, LessonFile
from proofbook.generator.pages import facts
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Element, Fold, Heading, Waiting, walk
from proofbook.generator.pages.elements.questions import Question
from proofbook.generator.pages.elements.tables import Table
from proofbook.generator.pages.environment import environment, label, unbroken
from proofbook.generator.pages.page import Gathered, Page
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.term_links import TermLinks
from proofbook.generator.pages.views import (
    costs,
    deep,
    evidence,
    frame,
    glossary,
    handwritten,
    home,
    lessons,
    machines,
    plans,
    published,
    recall,
    stages,
    trials,
    ways,
)
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import num_links, plain
from proofbook.runners.system.kinds import page_kind

# By the kind of a page, which function composes it, and what its scores in the search are
# multiplied by. Among the entries of pages of one rank, `fields` in `mkdocs.yml` decides.
_Compose = Callable[[Draft], Iterator[Element | Markup]]
KINDS: dict[str, tuple[_Compose, float]] = {
    "learn": (lessons.learn, 1.0),
    "deep": (deep.deep, 1.05),
    "chain": (deep.chained, 1.05),
    "worked": (lessons.worked, 1.0),
    "trace": (stages.trace, 1.0),
    "cost": (costs.cost, 0.8),
    "why": (lessons.why, 1.0),
    "try": (trials.trials, 0.6),
    "recall": (recall.recall, 0.1),
    "challenge": (lessons.challenge, 0.6),
    "experiment": (lessons.experiment, 1.0),
    "summary": (lessons.summary, 0.1),
    "home": (home.home, 0.3),
    "topics": (home.topics, 0.3),
    "topic": (home.topic, 0.2),
    "glossary": (glossary.glossary, 0.4),
    "plan": (plans.plan, 0.3),
    "planned": (plans.planned, 0.05),
    "published": (published.published, 0.05),
    "handwritten": (handwritten.handwritten, 1.0),
    # From here on, below whatever a lesson says of a word.
    "evidence": (evidence.evidence, 0.0005),
    "runs": (machines.runs, 0.0005),
    "machine": (machines.machine, 0.0005),
    "machines": (machines.machines, 0.0005),
}
DESCRIPTION_LENGTH = 180
FEW = 2  # headings of a page without a sidebar
# Keys of a chain whose texts stand on the page that lists its parts.
LISTED_WITH = frozenset({"introduction", "overview", "mental_model", "concept", "takeaways"})
# Pages of these kinds name each machine beside its numbers.
OF_MACHINES = ("runs", "machine", "evidence")
# What stands around these names no machine.
UNMEASURED = (*OF_MACHINES, "glossary")
HIDDEN = [
    *range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F,
    *range(0x2028, 0x202F), *range(0x2066, 0x206A),
]  # fmt: skip
SPELLED_OUT = {code: f"\\u{code:04x}" for code in HIDDEN}  # what a run printed and nobody would see


def begin(sheet: Sheet, gathered: Gathered) -> Draft:
    """A new page of a sheet."""
    at_hand = gathered.evidence
    evidence = (sheet.missing and at_hand.reference) or at_hand
    is_marked = not evidence.book.is_reference and sheet.kind not in OF_MACHINES
    folio = Folio(evidence, at_hand, gathered.others, sheet.path, marks_reference=is_marked)
    terms = folio.book.terms if sheet.mode not in (None, "recall") else ()
    return Draft(sheet, folio, TermLinks(terms, folio.root, _num_links(sheet)), gathered)


def printed(sheet: Sheet, gathered: Gathered) -> Page:
    """The page of a sheet: its content, what stands around it, and the facts of both."""
    draft, (compose, boost, names_machines) = begin(sheet, gathered), _kind_of(sheet)
    folio, topic, taken = draft.folio, sheet.topic, set[str]()
    is_lesson = sheet.kind == sheet.mode  # or, with a mode, a page of its chain
    opening = [draft.lede(draft.lesson(LessonFile).introduction)] if is_lesson else []
    content = [*opening, *compose(draft)]
    parts = list(walk(content))
    for part in parts:
        if isinstance(part, Table):
            part.give_ids(taken)
    title = (label if sheet.is_recorded else folio.line)(sheet.heading)
    if sheet.machine:
        title = title.replace(sheet.machine, unbroken(sheet.machine))
    heading = draft.heading(1, title)
    headings = [heading, *facts.headings(content)]
    # A sitting of Recall takes as long as what is due that day.
    minutes = 0 if sheet.mode == "recall" else facts.minutes(content, folio)
    groups = ways.ways(topic, folio) if topic else {}
    rail = ways.rail(sheet, groups, folio)
    needs = folio.markup.union(["page", sheet.kind], *(part.needs for part in parts))
    if (groups or rail) and sheet.kind != "summary":  # which ticks off nothing
        needs.add("way")
    if folio.sources.values or draft.links.used:
        needs.add("opening")
    # What a trace says is text: no expression, no Markdown.
    about = (label if sheet.kind in OF_MACHINES[:2] else folio.line)(sheet.about)
    origins, marks = frame.origins(folio), " ".join(folio.natures)
    values, natures = folio.sources.values, folio.ui["natures"]
    around = frame.Frame(
        sheet=sheet,
        root=folio.root,
        title=title,
        heading=heading,
        description=textwrap.shorten(plain(about), DESCRIPTION_LENGTH, placeholder="…"),
        boost=boost,
        hides=_hides(sheet, headings),
        scripts=facts.scripts(needs),
        styles=facts.styles(needs),
        rail=rail,
        lessons=groups,
        topic=folio.in_link.line(topic.file.title) if topic else Markup(),
        has_times=any(value.unit.num_seconds for value in values),
        has_waiting=any(
            isinstance(part, Waiting) or (isinstance(part, Fold) and part.after) for part in parts
        ),
        is_asking=any(isinstance(part, Question) for part in parts),
        former=folio.book.plan.former.get(sheet.path, ()) if folio.book.plan else (),
        content=content,
        at_hand=folio.at_hand.book.machine.name,
        machines=frame.machines(origins, folio.book),
        names_machines=names_machines,
        origins=origins,
        surprises=frame.surprises(folio),
        kinds=frozenset(word for value in values for word in (value.kind, value.nature)),
        natures=[(word, means) for word, means in natures.items() if word in marks],
        here=[str(one) != str(values[at]) for at, one in folio.sources.here.items()],
        sources=folio.sources.block(),
    )
    page = environment().get_template("page.md.j2").render(page=around)
    # A summary draws the first state of a figure and loads none of the others.
    return Page(
        content=page.translate(SPELLED_OUT).encode(),
        minutes=minutes,
        headings=headings,
        terms=frozenset(draft.links.used),
        claims=frozenset(folio.linked_claims),
        texts=frozenset(folio.texts | folio.sources.texts),
        scripts=around.scripts,
        searched=facts.searched(content, heading, is_markdown=bool(sheet.text)),
        assets={path: file for path, file in folio.assets.items() if path in page},
        footnotes=folio.sources.footnotes(),
        command=folio.sources.command,
    )


def _kind_of(sheet: Sheet) -> tuple[_Compose, float, bool]:
    """The function that composes a page, its factor in the search, whether it names machines."""
    if of_kind := page_kind(sheet.kind):
        kind, page = of_kind
        return kind.take(page.compose), page.boost, page.names_machines
    return *KINDS[sheet.kind], sheet.kind not in UNMEASURED


def _hides(sheet: Sheet, headings: Sequence[Heading]) -> list[str]:
    """The sidebars that a page does not show."""
    is_divided = sheet.has_toc or sum(part.is_listed for part in headings[1:]) > FEW
    has_contents = is_divided and (sheet.has_toc or sheet.mode or (sheet.topic and sheet.of))
    return ["navigation"] if has_contents else ["navigation", "toc"]


def _num_links(sheet: Sheet) -> int:
    """The links of a page that lists the parts of a chain; no other page has so many."""
    deep = sheet.topic.lessons.get("deep") if sheet.topic else None
    if sheet.kind != "deep" or not deep or not isinstance(deep.model, DeepFile):
        return 0
    texts = (field.text for field in deep.fields if LISTED_WITH.intersection(map(str, field.path)))
    listed = sum(1 + len(part.places) for part in chain(deep.model))
    return listed + sum(map(num_links, texts))
