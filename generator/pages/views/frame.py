"""What stands below a page: what must be known of its runs, and where its numbers come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from generator.content.book import Book, TraceOnPage
from generator.evidence import verdicts
from generator.evidence.folio import Folio
from generator.evidence.provenance import REFERENCE
from generator.evidence.regime import CROWDED, is_replayed
from generator.evidence.reproduce_command import command
from generator.pages.shown import Shown

WORDS_PER_MINUTE = 200
MINUTES_PER_ITEM = 0.5
# What of a page's markup asks for a script. Where answers are kept, proofbook.js comes before any.
SCRIPTS = {
    "sources": ('data-v="', "<table", 'class="pb-terms"'),
    "quiz": ('class="pb-item',),
    "recall": ("data-recall=",),
    "figures": ('class="pb-figure',),
    "play": ("data-play=",),
    "calculator": ("data-calculator",),
    "home": ("data-survive",),
    "narrow": ("data-narrows",),
}
APART = ("play",)  # a figure's own code, in a file of its own
# The style sheets that few pages need, each with what of their markup asks for it, any of these.
STYLES = {
    "assets/asking.css": ("pb-pieces", "pb-match", "pb-program"),
    "assets/calculator.css": ("data-calculator",),
    "assets/claims.css": (
        'class="pb-claim-facts',
        'class="pb-machine',
        'class="pb-retraction',
        'class="pb-advice',
    ),
    "assets/glossary.css": ('class="pb-terms"',),
    "assets/guide.css": ('class="pb-edges"', 'id="technique-'),
    "assets/home.css": ("data-survive",),
    "assets/indexes.css": ('class="pb-ways', 'class="pb-map'),
    "assets/play.css": ("pb-states",),
    "assets/recall.css": ("data-recall=",),
    "assets/runs.css": ("pb-runs",),
    "assets/sliders.css": ("pb-slider",),
    "assets/stages.css": ("pb-stage", "pb-inner"),
    "assets/summary.css": ("pb-summary",),
}
JOINT = "+"  # between the names of scripts that a page loads as one file
_KEPT = "data-items="
_WORD = re.compile(r"\S*\w\S*")
_NOT_READ = re.compile(
    r"<(?:(pre|svg|style|script)\b.*?</\1>"
    r'|p class="pb-(?:paper|waits).*?</p>'
    r'|details class="pb-details pb-(?:numbers|answer|backing|whole)".*?</details>)',
    re.DOTALL,
)


def minutes(body: str, num_items: int) -> int:
    """Minutes to read a page: its words, and a moment for each question."""
    text = re.sub(r"<[^>]+>", " ", _NOT_READ.sub(" ", body.replace("<wbr>", "")))
    words = _WORD.findall(text)  # a comma behind a link is none
    return max(1, round(len(words) / WORDS_PER_MINUTE + num_items * MINUTES_PER_ITEM))


def scripts(body: str, *, has_ways: bool) -> list[str]:
    """The scripts that a page loads: those whose markup it holds, in their order, as one file."""
    found = [name for name, marks in SCRIPTS.items() if any(mark in body for mark in marks)]
    keeps = has_ways or _KEPT in body or "quiz" in found or "recall" in found
    needed = ["proofbook", *found] if keeps else found
    shared = JOINT.join(name for name in needed if name not in APART)
    return [name for name in (shared, *(one for one in APART if one in needed)) if name]


def styles(body: str) -> list[str]:
    """The style sheets that a page loads beyond the one of all pages."""
    return [name for name, marks in STYLES.items() if any(mark in body for mark in marks)]


def machines(found: Sequence[Shown], book: Book) -> list[tuple[str, bool]]:
    """The machines behind a page, the one shown first, and whether each is the reference's."""
    named = {(origin.machine, origin.is_reference) for origin in found if origin.machine}
    return sorted(named, key=lambda one: (one[0] != book.machine.name, one))


def origins(folio: Folio, depth: int) -> list[Shown]:
    """The experiments behind a page, with the runs it used on each machine."""
    found: dict[tuple[str, str], tuple[TraceOnPage, Book, set[str]]] = {}
    for book, paths in _used(folio):
        for experiment, name in (path.split(".") for path in sorted(paths)):
            if shown := book.holder(f"{experiment}.{name}"):
                key = (experiment, shown.machine.name)
                found.setdefault(key, (shown, book, set()))[2].add(name)
    return [_origin(shown, sorted(names), book, depth) for shown, book, names in found.values()]


def _used(folio: Folio) -> Iterator[tuple[Book, set[str]]]:
    """The runs that a page used, with the book that shows them: this machine's, the reference's."""
    yield folio.book, folio.runs
    if folio.evidence.reference:
        yield folio.evidence.reference.book, folio.lent


def _origin(shown: TraceOnPage, names: Sequence[str], book: Book, depth: int) -> Shown:
    experiment = shown.trace.experiment
    return Shown(
        experiment=experiment,
        machine=shown.measured_on,
        is_reference=shown.machine.name == book.reference.name,
        recorded_at=shown.trace.recorded_at,
        torch=shown.trace.circumstances.torch,
        runs=tuple(names),
        raw=f"{'../' * depth}{shown.raw}",
        again=command([experiment], shown.measured_on, book.reference.name),
        is_stale=shown.is_stale,
        is_new=shown.reference is None and not shown.is_plan,
    )


def _notice(lead: str, text: str | Markup, css: str = "") -> Shown:
    """Something a reader must know of what stands above."""
    return Shown(css=css, lead=lead, text=text)


def _codes(*names: str) -> Markup:
    return Markup(", ").join(Markup("<code>{}</code>").format(one) for one in names)


def notices(folio: Folio, found: Sequence[Shown]) -> list[Shown]:
    """Stale traces, surprises and broken laws among what a page names, for its end."""
    rows: list[Shown] = []
    stale: dict[str, list[str]] = {}
    for origin in found:
        if origin.is_stale:
            stale.setdefault(origin.machine, []).append(origin.experiment)
    for machine, experiments in sorted(stale.items()):
        named = {"experiment": _codes(*dict.fromkeys(experiments)), "machine": _codes(machine)}
        rows.append(_notice("", Markup(folio.ui["notice"]["stale"]).format(**named)))
    rows += _new_runs(folio, found)
    return [*rows, *_surprises(folio), *_broken_laws(folio)]


def _new_runs(folio: Folio, found: Sequence[Shown]) -> Iterator[Shown]:
    """The runs that the reference machine has not measured, with the machine that has."""
    words = folio.ui["notice"]
    for origin in found:
        if origin.is_new:
            names = _codes(*(f"{origin.experiment}.{run}" for run in origin.runs))
            named = {"runs": names, "machine": _codes(origin.machine)}
            text = Markup(words["measured_by"]).format(**named)
            yield _notice(words["not_on_reference"], text)


def natures(folio: Folio, body: str) -> list[tuple[str, str]]:
    """The words behind numbers of a page, also of numbers that wait, and what each means."""
    runs = [run for book, paths in _used(folio) for run in map(book.run, paths) if run]
    used = {(run.nature, is_replayed(run)) for run in runs if run.nature != "real"}
    found = sorted(used) + ([(CROWDED, False)] if folio.text.sources.has_crowded else [])
    found += [(REFERENCE, False)] if folio.text.marks_reference else []
    words = folio.ui["notice"]
    return [
        (word, words["replayed" if replayed else word])
        for word, replayed in found
        if re.search(rf'class="pb-nature">[^<]*\b{word}\b', body)
    ]


def _surprises(folio: Folio) -> Iterator[Shown]:
    """The runs that did not end as declared here, also where the reference machine is shown."""
    words, statuses = folio.ui["notice"], folio.ui["statuses"]
    for path in sorted(folio.runs):
        run = folio.at_hand.book.run(path)
        if run is not None and run.is_surprise:
            said = Markup("<code>{}</code>, {} {}, {} {}").format(
                path,
                words["expected"],
                statuses[run.expected_status],
                words["ended"],
                statuses[run.status],
            )
            yield _notice(words["surprise"], said, "pb-surprise")


def _broken_laws(folio: Folio) -> Iterator[Shown]:
    for name, outcome in folio.outcomes.items():
        if outcome.is_broken_law and set(outcome.runs) & folio.runs:
            text = folio.line(folio.book.claims[name].says)
            verdict = verdicts.WORDS[outcome.verdict].capitalize()
            said = Markup("{} {}.").format(text, verdict)
            yield _notice(folio.ui["notice"]["law"], said, "pb-surprise")
