"""What stands above and below a page: ways into the topic, notices, where numbers come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from generator.content.book import Book, TraceOnPage
from generator.evidence import verdicts
from generator.evidence.folio import Folio
from generator.evidence.regime import CROWDED

WORDS_PER_MINUTE = 200
MINUTES_PER_ITEM = 0.5
# What of a page's markup asks for a script. Where answers are kept, proofbook.js comes before any.
SCRIPTS = {
    "sources": ('data-v="', "<table", 'class="pb-terms"'),
    "quiz": ('class="pb-item',),
    "recall": ("data-recall=",),
    "stepper": ("data-stepper",),
    "figures": ('class="pb-figure',),
    "play": ("data-play=",),
    "calculator": ("data-calculator",),
}
APART = ("play",)  # a figure's own code, in a file of its own
JOINT = "+"  # between the names of scripts that a page loads as one file
_KEPT = "data-items="
_NOT_READ = re.compile(
    r"<(pre|svg|style|script)\b.*?</\1>"
    r'|<details class="pb-details pb-(?:numbers|answer|backing)".*?</details>',
    re.DOTALL,
)


@dataclass(frozen=True)
class Origin:
    """One experiment that a page draws on."""

    experiment: str
    machine: str
    is_reference: bool
    recorded_at: str
    torch: str
    runs: tuple[str, ...]
    raw: str
    is_fallback: bool
    is_stale: bool


@dataclass(frozen=True)
class Notice:
    """Something a reader must know before reading on."""

    css: str
    lead: str
    text: str | Markup


def minutes(body: str, num_items: int) -> int:
    """Minutes to read a page: its words, and a moment for each question."""
    text = re.sub(r"<[^>]+>", " ", _NOT_READ.sub(" ", body))
    return max(1, round(len(text.split()) / WORDS_PER_MINUTE + num_items * MINUTES_PER_ITEM))


def scripts(body: str, *, has_ways: bool) -> list[str]:
    """The scripts that a page loads: those whose markup it holds, in their order, as one file."""
    found = [name for name, marks in SCRIPTS.items() if any(mark in body for mark in marks)]
    keeps = has_ways or _KEPT in body or "quiz" in found or "recall" in found
    needed = ["proofbook", *found] if keeps else found
    shared = JOINT.join(name for name in needed if name not in APART)
    return [name for name in (shared, *(one for one in APART if one in needed)) if name]


def machines(found: Sequence[Origin]) -> list[tuple[str, bool]]:
    """The machines behind a page, and whether each is the reference machine."""
    return sorted({(origin.machine, origin.is_reference) for origin in found})


def origins(runs: Iterable[str], book: Book, depth: int) -> list[Origin]:
    """The experiments behind a page, with the runs it used."""
    by_experiment: dict[str, list[str]] = {}
    for path in sorted(set(runs)):
        experiment, name = path.split(".")
        by_experiment.setdefault(experiment, []).append(name)
    return [
        _origin(book.traces[experiment], names, book, depth)
        for experiment, names in by_experiment.items()
        if experiment in book.traces
    ]


def _origin(shown: TraceOnPage, names: Sequence[str], book: Book, depth: int) -> Origin:
    experiment = shown.trace.experiment
    return Origin(
        experiment=experiment,
        machine=shown.machine.name,
        is_reference=shown.machine.name == book.reference.name,
        recorded_at=shown.trace.recorded_at,
        torch=shown.trace.circumstances.torch,
        runs=tuple(names),
        raw=f"{'../' * depth}traces/{shown.folder}/{experiment}.json",
        is_fallback=shown.is_fallback,
        is_stale=shown.is_stale,
    )


def notices(folio: Folio, found: Sequence[Origin]) -> list[Notice]:
    """Fallbacks, stale traces, surprises and broken laws among what a page used."""
    words = folio.ui["notice"]
    rows: list[Notice] = []
    concerned: dict[tuple[str, str], list[str]] = {}
    for origin in found:
        for notice, is_so in (("fallback", origin.is_fallback), ("stale", origin.is_stale)):
            if is_so:
                concerned.setdefault((notice, origin.machine), []).append(origin.experiment)
    for (notice, machine), experiments in sorted(concerned.items()):
        names = Markup(", ").join(Markup("<code>{}</code>").format(one) for one in experiments)
        named = {"experiment": names, "machine": Markup("<code>{}</code>").format(machine)}
        rows.append(Notice("", "", Markup(words[notice]).format(**named)))
    rows += _natures(folio)
    for origin in found:
        rows += _surprises(folio, origin)
    return rows + _broken_laws(folio)


def _natures(folio: Folio) -> list[Notice]:
    """What the words behind numbers mean, where a page shows runs that are no ordinary ones."""
    used = {run.nature for run in map(folio.book.run, folio.runs) if run}
    words = folio.ui["notice"]
    found = sorted(used - {"real"}) + ([CROWDED] if folio.text.has_crowded else [])
    return [Notice("", f"{word.capitalize()}.", words[word]) for word in found]


def _broken_laws(folio: Folio) -> list[Notice]:
    rows, words = [], folio.ui["notice"]
    for name, outcome in folio.outcomes.items():
        if outcome.is_broken_law and set(outcome.runs) & folio.runs:
            text = folio.line(folio.book.claims[name].says)
            verdict = verdicts.WORDS[outcome.verdict].capitalize()
            rows.append(Notice("pb-surprise", words["law"], Markup("{} {}.").format(text, verdict)))
    return rows


def _surprises(folio: Folio, origin: Origin) -> list[Notice]:
    words, statuses = folio.ui["notice"], folio.ui["statuses"]
    runs = folio.book.traces[origin.experiment].trace.runs
    return [
        Notice(
            "pb-surprise",
            words["surprise"],
            Markup("<code>{}.{}</code>, {} {}, {} {}").format(
                origin.experiment,
                name,
                words["expected"],
                statuses[runs[name].expected_status],
                words["ended"],
                statuses[runs[name].status],
            ),
        )
        for name in origin.runs
        if runs[name].is_surprise
    ]
