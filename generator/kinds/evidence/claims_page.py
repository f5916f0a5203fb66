"""The pages of evidence; that of all claims says how many hold, which err most, what is cited."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from proofbook.generator.content.book import Book
from proofbook.generator.content.claim import Reference, Verdict
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Block, Element, Fold, Made, worded
from proofbook.generator.pages.elements.tables import Table
from proofbook.generator.pages.environment import counted
from proofbook.generator.pages.sheets import EVIDENCE, Sheet
from proofbook.generator.pages.views.claims import cited, cited_sources, measured_by
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.claim_formula import off_by
from proofbook.generator.values.machines import disagree
from proofbook.generator.values.value import numeric
from proofbook.generator.values.verdicts import UNDECIDED
from proofbook.runners.system.kinds import kinds

NUM_FURTHEST = 5


class Tally(NamedTuple):
    """What claims come to on the machine shown."""

    laws: Counter[Verdict]  # also those that do not apply, or have no evidence
    num_observations: int
    contrary: Sequence[str]  # the addresses of observations that do not hold
    num_lent: int  # claims that only the reference machine has the runs for
    reference: str  # its name


def sheets(book: Book) -> Iterator[Sheet]:
    """The pages of evidence: of all claims, of machines, and of each experiment's runs."""
    about = (
        "For each experiment, this page says how many laws hold and how many observations turned "
        "out otherwise. The page of an experiment has each of its claims, with prediction, "
        "observation and verdict."
    )
    yield Sheet(EVIDENCE, "evidence", "Evidence", about, "content/claims", has_toc=True)
    sheet = partial(Sheet, under=EVIDENCE)
    about = "Each machine that ran experiments has a page: what it is, and what it measured."
    yield sheet("machines/index.md", "machines", "Machines", about)
    about = "What a machine is, and what it measured."
    recorded = partial(sheet, is_recorded=True, about_is_recorded=True)
    for name in book.machines:
        path, title = f"machines/{name}.md", f"Machine {name}"
        yield recorded(path, "machine", title, about, of=name, kept=name)
    for name, on_page in book.traces.items():
        if not on_page.nature:
            path, title = f"evidence/{name}.md", f"The runs of {name}"
            yield recorded(path, "runs", title, on_page.trace.question, of=name)


def evidence(draft: Draft) -> Iterator[Element | Markup]:
    """What the claims of the book come to, and its sources."""
    folio, book = draft.folio, draft.folio.book
    yield draft.opening(draft.sheet.about)
    yield Made(
        "ShownMachine", is_found=False, book=book, cpu=folio.cell("machine.cpu"),
        num_cores=folio.cell("machine.num_cores"), memory=folio.cell("machine.memory_bytes"),
    )  # fmt: skip
    yield Markup('<div id="repeat"></div>')
    yield from draft.passage("Run it yourself", book.home.repeat)
    yield draft.heading(2, "Summary")
    groups = [(name, _tally(names, folio)) for name, names in draft.gathered.claim_groups.items()]
    total = _tally([*book.claims], folio)
    by_experiment = Made(
        "TalliedClaims", is_found=False, book=book, total=total, groups=groups,
        furthest=_furthest(folio), others=[*_on_others(folio)],
    )  # fmt: skip
    yield Block([worded("Tally", **total._asdict()), by_experiment])
    if book.references:
        yield draft.heading(2, "Sources")
        yield _cited(folio)


def _tally(claims: Sequence[str], folio: Folio) -> Tally:
    outcomes, own = map(folio.at_hand.judged, claims), folio.at_hand.book.machine.name
    here = [outcome for outcome in outcomes if measured_by(outcome, folio) == own]
    observed = [outcome for outcome in here if outcome.claim.kind == "observation"]
    return Tally(
        Counter(outcome.verdict for outcome in here if outcome.claim.kind == "law"),
        len(observed),
        [folio.claim_place(o.claim.id) for o in observed if o.verdict == "does_not_hold"],
        len(claims) - len(here),
        folio.book.reference.name,
    )


def _furthest(folio: Folio) -> Table:
    """The `NUM_FURTHEST` laws of equality with the largest relative errors."""
    errors = []
    for name, outcome in folio.at_hand.judged_claims.items():
        if outcome.claim.kind == "law" and outcome.claim.relation == "equals":
            off = off_by(outcome.predicted, outcome.observed, outcome.claim.tolerance)
            if off is not None and off.form.way == "error" and numeric(off):
                errors.append((abs(float(numeric(off))), name, off))
    unlisted = folio.over(folio.evidence)
    unlisted.runs = set()  # a list of all experiments names no run of theirs at its foot
    link = Markup('<a href="{}">{}</a>')
    rows = []
    for _, name, off in sorted(errors, key=lambda error: -error[0])[:NUM_FURTHEST]:
        says = unlisted.in_link.line(folio.book.claims[name].says)
        rows.append([link.format(folio.claim_place(name), says), unlisted.show(off)])
    return Table(["Law", "#Off by"], rows, is_headed=False)


def _on_others(folio: Folio) -> Iterator[tuple[str, int, int]]:
    """Per other machine: its name, how many claims it decides as well, and how many otherwise."""
    for machine, other in folio.other_outcomes.items():
        pairs = [(folio.at_hand.judged(name), there) for name, there in other.judged_claims.items()]
        if num := sum(UNDECIDED.isdisjoint({here.verdict, there.verdict}) for here, there in pairs):
            yield machine, num, sum(disagree(*pair) for pair in pairs)


def _cited(folio: Folio) -> Fold:
    """All references by title, those of one document together."""
    given = (kind.take(kind.references) for kind in kinds() if kind.references)
    of_rows = {cited.id for references in given for cited in references(folio.book.traces)}
    documents: dict[str, list[tuple[Reference, Markup]]] = {}
    apart = []
    for reference in sorted(
        folio.book.references.values(), key=lambda r: r.title.strip("“").lower()
    ):
        if reference.id in of_rows:
            apart.append(reference)
        else:
            documents.setdefault(reference.url, []).append(cited(reference, folio))
    title = Markup("Sources that this book cites: ") + counted(len(documents))
    sources = cited_sources([*documents.values()], apart, is_anchored=True)
    return Fold(title, [sources], is_found=True)
