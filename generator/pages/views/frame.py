"""What stands around a page's content: its place in the book, and where its numbers come from."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from generator.content.book import Book
from generator.content.lesson import CHAINED, Mode
from generator.content.shelf import TraceOnPage, measure_command
from generator.pages.draft import Draft
from generator.pages.elements.element import Block, Element
from generator.pages.environment import unbroken
from generator.pages.views.ways import GROUPS, Rail, Step
from generator.printing.folio import Folio
from generator.printing.sources import command
from runners.core.trace.records import Run, software

# What the scores of a page are multiplied by in the search, where that of a lesson is 1. Among the
# entries of pages of one rank, `fields` in `mkdocs.yml` decides.
BOOSTS = {
    "deep": 1.05, "chain": 1.05, "cost": 0.8, "try": 0.6, "challenge": 0.6, "glossary": 0.4,
    "guide": 0.4, "home": 0.3, "topics": 0.3, "plan": 0.3, "topic": 0.2, "symptom": 0.15,
    "recall": 0.1, "lab": 0.5, "summary": 0.1, "planned": 0.05, "published": 0.05,
    # From here on, below whatever a lesson says of a word.
    "retracted": 0.002, "evidence": 0.0005, "runs": 0.0005, "machines": 0.0005, "machine": 0.0005,
}  # fmt: skip
MOST_NAMED = 4  # experiments of another machine that the foot names


# --- above the content


@dataclass(frozen=True)
class Place(Element):
    """A page's place on its way, and what comes next there."""

    rail: Rail
    minutes: int


@dataclass(frozen=True)
class Tab:
    """A page of a topic."""

    href: str
    word: str
    page: str = ""  # whose items a script ticks off
    items: str = ""
    current: str = ""  # `page`, or `true` for a page below it


@dataclass(frozen=True)
class TabGroup:
    """Pages of a topic under a word."""

    called: str
    tabs: Sequence[Tab]


@dataclass(frozen=True)
class Tabs(Element):
    """The pages of a topic, in groups; with the `topic` where no rail names it."""

    topic: Markup
    groups: Sequence[TabGroup]


@dataclass(frozen=True)
class LessonMeta(Element):
    """What a lesson is, and how to read it."""

    mode: Mode
    has_measured: bool  # numbers that runs measured
    has_waiting: bool  # parts that wait for an answer


def tabs(draft: Draft, ways: Sequence[Step], rail: Rail | None) -> Tabs:
    """The tabs of the page's topic."""
    sheet, topic = draft.sheet, draft.sheet.topic
    assert topic
    is_named = (rail and not rail.is_of_topic) or sheet.mode in CHAINED or sheet.kind == "summary"
    groups = []
    for called, modes in GROUPS.items():
        own = []
        if called == "Practise" and topic.labs:
            first, word = next(iter(topic.labs)), "Lab" if len(topic.labs) == 1 else "Labs"
            current = ("page" if sheet.lab == first else "true") if sheet.lab else ""
            own.append(Tab(f"lab-{first}.html", word, current=current))
        for way in (way for mode in modes for way in ways if way.mode == mode):
            current = ("true" if sheet.part else "page") if way.mode == sheet.mode else ""
            own.append(Tab(way.href, way.title, way.page, way.items or "", current))
        if called == [*GROUPS][-1] and topic.file.key_laws:
            current = "page" if sheet.kind == "summary" else ""
            own.append(Tab("summary.html", "Summary", current=current))
        groups.append(TabGroup(called, own))
    title = draft.folio.in_link.line(topic.file.title) if is_named else Markup()
    return Tabs(title, [group for group in groups if group.tabs])


def measured_elsewhere(draft: Draft) -> Iterator[Element]:
    """That another machine than the one at hand measured the page's runs, and why."""
    folio, lacks = draft.folio, draft.sheet.lacks
    behind = machines(origins(folio), folio.book)
    own = folio.at_hand.book.machine.name
    if not behind or own in (name for name, _ in behind):
        return
    page = "this topic" if draft.sheet.topic else "this page"
    if lacks:
        do = Markup(" This command measures them: <code>{}</code>").format(
            measure_command(" ".join(lacks))
        )
        says = f"has not measured all runs that {page} needs." + do
    elif lacks is not None:
        says = escape(f"has measured the runs of {page}, but they do not give all that it states.")
    else:
        says = escape("has not measured the runs of this page.")
    words = Markup("Measured on {}. <code>{}</code> {}")
    link = machine_link(*behind[0], folio)
    yield Block([words.format(link, unbroken(own), says)], "pb-meta", "p")


def machine_link(name: str, is_reference: bool, folio: Folio) -> Markup:
    """A machine's name as a link, and what is said of the reference machine."""
    link = Markup('<a href="{}machines/{}.html"><code>{}</code></a>')
    named = link.format(folio.root, name, unbroken(name))
    return Markup("{}, {}").format(named, folio.ui["reference_machine"]) if is_reference else named


# --- below the content


@dataclass(frozen=True)
class HowSure(Element):
    """The question of how sure a reader is, which a script copies into each item."""

    is_within_markdown: bool


@dataclass(frozen=True)
class Natures(Element):
    """What the words behind numbers mean."""

    meanings: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Onward(Element):
    """What comes before and after the page on its way; after a summary, its topic."""

    rail: Rail | None
    topic: Markup
    root: str


@dataclass(frozen=True)
class PageOrigin:
    """An experiment whose runs a page used, on a machine."""

    experiment: str
    machine: str  # none, of plans
    is_reference: bool
    recorded_at: str
    software: str
    runs: list[str]
    raw: str  # the address of its trace
    again: str  # the command that measures it again
    is_stale: bool
    was_busy: bool
    is_new: bool  # and not measured on the reference machine


@dataclass(frozen=True)
class Foot(Element):
    """Where the page comes from."""

    says: Markup
    experiments: Sequence[str]
    by_machine: dict[Markup, list[PageOrigin]]


def notices(draft: Draft, origins: Sequence[PageOrigin]) -> Iterator[Element]:
    """What must be known of the runs of the page."""
    for origin in origins:
        if origin.is_stale:
            says = Markup(
                "The code of <code>{}</code> has changed since its runs. "
                "Their numbers on this page come from the older code."
            )
            yield _notice(says.format(origin.experiment))
        if origin.is_new:
            says = Markup(
                "<strong>Not measured on the reference machine.</strong> <code>{}</code> "
                "measured these runs of <code>{}</code>: {}."
            )
            runs = ", ".join(origin.runs)
            yield _notice(says.format(origin.machine, origin.experiment, runs))
    own = draft.folio.at_hand.book.machine.name
    on = Markup(" on <code>{}</code>").format(unbroken(own))
    for path, run in surprises(draft.folio):
        says = Markup(
            "<strong>A run did not end as declared:</strong> <code>{}</code>{}, expected {}, "
            "ended {}"
        ).format(
            path,
            on if draft.sheet.lacks is not None else "",
            run.expected_status.replace("_", " "),
            run.status.replace("_", " "),
        )
        yield _notice(says, " pb-surprise")


def _notice(says: Markup, css: str = "") -> Block:
    return Block([Block([says], tag="p")], f"pb-notice{css}")


def surprises(folio: Folio) -> list[tuple[str, Run]]:
    """The runs of a page that did not end as declared, also where the reference is shown."""
    used = ((path, folio.at_hand.book.run(path)) for path in sorted(folio.runs))
    return [(path, run) for path, run in used if run is not None and run.is_surprise]


def foot(folio: Folio, origins: Sequence[PageOrigin], *, names_machines: bool) -> Foot:
    """Where the page comes from."""
    by_machine = defaultdict(list)
    reference = Markup(" ({})").format(folio.ui["reference_machine"])
    for origin in origins:
        named = unbroken(origin.machine) + (reference if origin.is_reference else "")
        where = Markup("{}, {}").format(named if origin.machine else "no device", origin.software)
        by_machine[where].append(origin)
    names = list(dict.fromkeys(origin.experiment for origin in origins))
    return Foot(_measured_on(folio, origins) if names_machines else Markup(), names, by_machine)


def _measured_on(folio: Folio, origins: Sequence[PageOrigin]) -> Markup:
    """On which machines the numbers of a page were measured."""
    behind = machines(origins, folio.book)
    if not behind:
        values = folio.sources.values
        kinds = {value.kind for value in values} | {value.nature for value in values}
        ways = [way for way in ("given", "simulated", "computed", "cited") if way in kinds]
        return Markup(
            "How the numbers of this page were found: {}. No run of this book measured them."
        ).format(", ".join(ways))
    says = Markup("Measured on {}").format(machine_link(*behind[0], folio))
    if len(behind) > 1:
        lent = [own.experiment for own in origins if own.machine == behind[1][0]]
        names = Markup(", ").join(map(Markup("<code>{}</code>").format, lent))
        named = Markup(" ({})").format(names) if len(lent) < MOST_NAMED else ""
        other = machine_link(*behind[1], folio)
        says += Markup("; where it has no run{}, on {}").format(named, other)
    if not all(origin.machine for origin in origins):
        says += "; plans are simulated, on no device"
    busy = " Other processes used its cores meanwhile, so times may be too long."
    return says + "." + busy * any(origin.was_busy for origin in origins)


def machines(origins: Sequence[PageOrigin], book: Book) -> list[tuple[str, bool]]:
    """The machines behind a page, its own first, and whether each is the reference machine."""
    named = {(origin.machine, origin.is_reference) for origin in origins if origin.machine}
    return sorted(named, key=lambda machine: (machine[0] != book.machine.name, machine))


def origins(folio: Folio) -> list[PageOrigin]:
    """Each experiment whose runs a page used, by machine, with its software and the runs."""
    by_trace: dict[tuple[str, str], PageOrigin] = {}
    used = [(folio.book, folio.runs)]
    if folio.evidence.reference:
        used.append((folio.evidence.reference.book, folio.lent))
    for book, paths in used:
        for path in sorted(paths):
            if on_page := book.holder(path):
                experiment, name = path.split(".")
                key = experiment, on_page.machine.name
                by_trace.setdefault(key, _origin(on_page, book, folio)).runs.append(name)
    return list(by_trace.values())


def _origin(on_page: TraceOnPage, book: Book, folio: Folio) -> PageOrigin:
    return PageOrigin(
        experiment=on_page.trace.experiment,
        machine=on_page.measured_on,
        is_reference=on_page.machine.name == book.reference.name,
        recorded_at=on_page.trace.recorded_at,
        software=software(on_page.trace.circumstances),
        runs=[],
        raw=folio.root + on_page.file,
        again=reproduce_command(on_page, book),
        is_stale=on_page.is_stale,
        was_busy=on_page.trace.quiet is not None and on_page.trace.quiet.was_busy,
        is_new=not (on_page.reference or on_page.is_of_planner),
    )


def reproduce_command(trace: TraceOnPage, book: Book) -> str:
    """The command that measures an experiment again and compares it with this page's trace."""
    return command([trace.trace.experiment], trace.measured_on, book.reference.name)
