"""The page of all evidence: how many laws hold, which are furthest off, and what is cited."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from generator.content.claim import Reference
from generator.content.shelf import published_references
from generator.pages.draft import Draft
from generator.pages.elements.element import (
    Aside,
    Block,
    Element,
    Fold,
    ListOfLines,
)
from generator.pages.elements.tables import Row, Table
from generator.pages.environment import counted, unbroken
from generator.pages.views.claims import measured_by, reference_words
from generator.pages.views.machines import accelerators, machine_link
from generator.printing.folio import Folio, breakable
from generator.values.claim_formula import off_by
from generator.values.machines import disagree
from generator.values.value import numeric
from generator.values.verdicts import UNDECIDED

NUM_FURTHEST = 5
MEASURED = Markup(
    'Measured on {}: {}, {} cores, {}{} of memory · <a href="machines/index.html">all machines</a>'
)
MACHINE = "machine.cpu", "machine.num_cores", "machine.memory_bytes"
BEYOND = Markup("; {} more do not apply here, or have no evidence here")
OBSERVED = Markup(" {} {} what the runs showed. {} of them turned out otherwise here.")
LENT = Markup(" For {} more claims, only {} has the runs; they are not counted.")
SURPRISE = Markup(
    '<strong>A surprise:</strong> <a href="evidence/{0}.html#{1}"><code>{0}.{1}</code></a>, '
    "expected {2}, ended {3}"
)
PUBLISHED = Markup(
    " numbers of others, each listed with its source under "
    '<a href="plan/published.html">Published measurements</a>.'
)
Parts = Iterator[Element | Markup]


class Tally(NamedTuple):
    """What claims come to on the machine shown."""

    num_laws: int  # without those that do not apply, or have no evidence
    num_holding: int
    num_beyond: int  # these laws
    num_observations: int
    num_lent: int  # claims that only the reference machine has the runs for
    contrary: Sequence[str]  # the observations that do not hold


def evidence(draft: Draft) -> Parts:
    """What the claims of the book come to, and its sources."""
    folio, book = draft.folio, draft.folio.book
    yield draft.opening(draft.sheet.about)
    machine = machine_link(book.machine.name, book.is_reference, folio)
    cpu, cores, memory = map(folio.cell, MACHINE)
    words = MEASURED.format(machine, cpu, cores, accelerators(book.machine), memory)
    yield Aside(words, "pb-meta", is_found=False)
    yield Markup('<div id="repeat"></div>')
    yield from draft.passage("Run it yourself", book.home.repeat)
    yield draft.heading(2, "Summary")
    yield Block([*_summary(draft)])
    documents, of_rows = _cited(folio)
    if documents:
        yield draft.heading(2, "Sources")
        anchored = Markup('<span id="reference-{}">{}</span>').format
        lines = [
            Markup(" ").join(anchored(*words) for words in _document(references, folio))
            for references in documents
        ]
        if of_rows:
            anchors = Markup().join(anchored(reference.id, "") for reference in of_rows)
            lines.append(anchors + counted(len(of_rows)) + PUBLISHED)
        title = Markup("Sources that this book cites: ") + counted(len(documents))
        sources = ListOfLines(lines, css="pb-sources", line_css="pb-cited", is_found=False)
        yield Fold(title, [sources], is_found=True)


def _document(references: Sequence[Reference], folio: Folio) -> Iterator[tuple[str, Markup]]:
    """Of each place in a document its id and what it says; the first names the document."""
    first, *others = references
    yield first.id, reference_words(first, folio)
    for other in others:
        title = f"{other.title}: " if other.title != first.title else ""
        yield other.id, escape(title) + folio.line(other.says)


def _summary(draft: Draft) -> Parts:
    folio, book = draft.folio, draft.folio.book
    all_claims = _tally([*book.claims], folio)
    yield Block([_in_words(all_claims, folio)], tag="p")
    for name, on_page in book.traces.items():
        for run, measured in on_page.trace.runs.items():
            if measured.is_surprise:
                ends = measured.expected_status, measured.status
                expected, ended = (status.replace("_", " ") for status in ends)
                yield Aside(SURPRISE.format(name, run, expected, ended), "pb-notice pb-surprise")
    if book.claims:
        rows = [_row(*group, folio) for group in draft.gathered.claim_groups.items()]
        yield Table(["Experiment", "#Laws that hold", "#Observations", "#Otherwise"], rows)
    if furthest := [*_furthest(folio)]:
        is_within = all_claims.num_holding == all_claims.num_laws
        within = "; all are within their tolerance" if is_within else ""
        yield Markup("<p>The laws with the largest errors{}:</p>").format(within)
        yield Table(["Law", "#Off by"], furthest, is_headed=False)
    link = Markup('<a href="{}machines/{}.html">{}</a>')
    if others := [
        [link.format(folio.root, name, unbroken(name)), counted(num_shared), counted(num_contrary)]
        for name, num_shared, num_contrary in _on_others(folio) if num_shared
    ]:  # fmt: skip
        yield Markup("<p>Other machines judge these claims as well:</p>")
        yield Table(["Machine", "#Claims judged", "#Otherwise"], others)


def _in_words(tally: Tally, folio: Folio) -> Markup:
    """What all claims come to."""
    if not folio.book.claims:
        return Markup("This book states no claims yet.")
    words = Markup()
    if tally.num_laws or tally.num_beyond:
        words += Markup("{} of {} laws hold").format(
            *map(counted, (tally.num_holding, tally.num_laws))
        )
        words += BEYOND.format(counted(tally.num_beyond)) if tally.num_beyond else ""
        words += "."
    if number := tally.num_observations:
        say = "observation says" if number == 1 else "observations say"
        words += OBSERVED.format(counted(number), say, counted(len(tally.contrary)))
    if tally.num_lent:
        words += LENT.format(counted(tally.num_lent), unbroken(folio.book.reference.name))
    return words


def _row(name: str, claims: Sequence[str], folio: Folio) -> Row:
    """The claims that rest on an experiment."""
    on_page, tally = folio.book.traces.get(name), _tally(claims, folio)
    experiment = Markup('<a href="{}"><code>{}</code></a>')
    small = Markup("<br><small>{} {}</small>")
    has_laws = tally.num_laws or tally.num_beyond
    laws = counted(f"{tally.num_holding} of {tally.num_laws}" if has_laws else "–")
    if tally.num_beyond:
        laws += small.format(tally.num_beyond, "left open here")
    if tally.num_lent:
        reference = Markup("on <code>{}</code>").format(unbroken(folio.book.reference.name))
        laws += small.format(tally.num_lent, reference)
    otherwise = Markup('<a class="pb-label pb-does-not-hold" href="{}" title="{}">{}</a>')
    return [
        experiment.format(on_page.page, breakable(name)) if on_page else "–",
        laws,
        counted(tally.num_observations) if tally.num_observations else "–",
        otherwise.format(
            folio.claim_place(tally.contrary[0]), folio.ui["counted"], len(tally.contrary)
        ) if tally.contrary else "–",
    ]  # fmt: skip


def _tally(claims: Sequence[str], folio: Folio) -> Tally:
    """Judge claims, by name."""
    outcomes = [folio.at_hand.judged(name) for name in claims]
    here = [
        outcome
        for outcome in outcomes
        if measured_by(outcome, folio) == folio.at_hand.book.machine.name
    ]
    laws = [outcome.verdict for outcome in here if outcome.claim.kind == "law"]
    observed = [outcome for outcome in here if outcome.claim.kind == "observation"]
    num_beyond = laws.count("does_not_apply") + laws.count("no_evidence")
    return Tally(
        num_laws=len(laws) - num_beyond,
        num_holding=laws.count("holds"),
        num_beyond=num_beyond,
        num_observations=len(observed),
        num_lent=len(outcomes) - len(here),
        contrary=[outcome.claim.id for outcome in observed if outcome.verdict == "does_not_hold"],
    )


def _furthest(folio: Folio) -> Iterator[Row]:
    """Yield rows of the `NUM_FURTHEST` laws of equality with the largest relative errors."""
    errors = []
    for name, outcome in folio.at_hand.judged_claims.items():
        if outcome.claim.kind == "law" and outcome.claim.relation == "equals":
            off = off_by(outcome.predicted, outcome.observed, outcome.claim.tolerance)
            if off is not None and off.form.way == "error" and numeric(off):
                errors.append((abs(float(numeric(off))), name, off))
    unlisted = folio.over(folio.evidence)
    unlisted.runs = set()  # a list of all experiments names no run of theirs at its foot
    link = Markup('<a href="{}">{}</a>')
    for _, name, off in sorted(errors, key=lambda error: -error[0])[:NUM_FURTHEST]:
        says = unlisted.in_link.line(folio.book.claims[name].says)
        yield [link.format(folio.claim_place(name), says), unlisted.show(off)]


def _on_others(folio: Folio) -> Iterator[tuple[str, int, int]]:
    """Per other machine: its name, how many claims it decides as well, and how many otherwise."""
    for machine, other in folio.other_outcomes.items():
        pairs = [(folio.at_hand.judged(name), there) for name, there in other.judged_claims.items()]
        decided = [UNDECIDED.isdisjoint({here.verdict, there.verdict}) for here, there in pairs]
        yield machine, sum(decided), sum(disagree(*pair) for pair in pairs)


def _cited(folio: Folio) -> tuple[list[list[Reference]], list[Reference]]:
    """All references, in lists by URL, by title; apart, those of rows of published tables."""
    references = sorted(
        folio.book.references.values(), key=lambda reference: reference.title.strip("“").lower()
    )
    of_rows = {reference.id for reference in published_references(folio.book.traces)}
    documents: dict[str, list[Reference]] = {}
    for reference in references:
        if reference.id not in of_rows:
            documents.setdefault(reference.url, []).append(reference)
    return list(documents.values()), [ref for ref in references if ref.id in of_rows]
