"""Sentences that people read: how each stands, its runs, and a program that repeats it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup, escape

from generator.checks import claim_checks
from generator.content import listed_code
from generator.content.claim import Statement
from generator.pages.draft import Draft
from generator.pages.elements.element import (
    Aside,
    Block,
    Content,
    Element,
    Fold,
    NarrowingField,
    OnThisPage,
    Unfound,
)  # fmt: skip
from generator.pages.elements.programs import highlighted, printed
from generator.pages.environment import command_words, unbroken
from generator.pages.views.claims import JudgedClaim, measured_by, verdict_row
from generator.printing.folio import Folio, breakable
from generator.printing.markdown import plain
from generator.printing.sources import command
from generator.values.verdicts import Judged

_SENTENCE_ENDS = re.compile(r"(?<=[.?!])\s+(?=[A-Z`*\[{])")
SHOWN = 2  # sentences of a correction; the rest is closed


# A sentence's verdict as it is shown of one machine, and its class.
STANDINGS = {
    "false": ("false", "pb-does-not-hold"),
    "too_general": ("too general", "pb-differs"),
    "depends": ("depends on the implementation", "pb-differs"),
    "true": ("true", "pb-holds"),
    "otherwise": ("the runs of this machine differ", "pb-differs"),
    "untested": ("not tested here", "pb-does-not-apply"),
}
JUDGED = (
    "Each is judged in the context of its source. “False” means that we know no conditions under "
    "which it holds. “Too general” means that a run shows a case in which it fails. “Depends on "
    "the implementation” means that libraries differ. “True” means that the run confirms it under "
    "the conditions named. Where no run tests a statement, or where runs of this machine differ, "
    "the entry says so. Most have a short program that shows the effect on your machine."
)
RANKED = (
    "We ranked these{} by judgement, asking two questions: who reads the statement, and what does "
    "it cost to act on it where it fails, or is read too broadly? Each entry answers both."
)
PARAGRAPH = Markup("<p>{}</p>")
SOURCE = Markup(
    'Source: <a class="pb-cited" href="{}" rel="noreferrer">{}</a>, '
    '<span class="pb-cited">{}</span>'
)
AGAIN = Markup("{} it again, from the project's folder: <code>{}</code>")
HERE = Markup("From the project's folder: <code>{}</code>")
LISTED = Markup('<div class="highlight"><pre><code tabindex="0">{}</code></pre></div>')
TO_DOWNLOAD = Markup(
    'See the effect yourself: download <a href="{}" download>{}</a>, then run <code>{}</code> '
    "(on Linux; it needs {} alone)"
)
USES = Markup(
    "The program of this entry does not repeat the measurement; it uses {}. Compare the effect, "
    "not the numbers."
)


@dataclass(frozen=True)
class TestedStatement(Element):
    """A sentence with what was found of it."""

    id: str
    content: Content


def retracted(draft: Draft) -> Iterator[Element | Markup]:
    """The page of all statements; those that the home page names stand first."""
    folio, first = draft.folio, draft.folio.book.home.statements
    statements = draft.folio.book.statements.values()
    yield draft.opening(f"{draft.sheet.about} {JUDGED}")
    words = [escape(plain(folio.line(sentence.said))) for sentence in statements]
    yield OnThisPage([*zip(folio.book.statements, words, strict=True)])
    yield NarrowingField(Markup("Show statements that contain"), ".pb-statement")
    is_ten = len(first) == 10
    for place, sentence in enumerate(statements):
        if first and not place:
            title = "Ten common statements" if is_ten else "Common statements"
            yield draft.heading(2, title, anchor="ten")
            yield Markup(f"<p>{RANKED}</p>").format(" ten" * is_ten)
        elif first and place == len(first):
            yield draft.heading(2, "More statements", anchor="others")
        yield TestedStatement(sentence.id, [*_statement(sentence, draft)])


def _statement(sentence: Statement, draft: Draft) -> Iterator[Element | Markup]:
    """A sentence, its standings by machine, its correction, and folded what that rests on."""
    folio = draft.folio
    row = verdict_row(sentence.claim, folio)
    first, *others = re.split(r"\n\s*\n", sentence.correction.strip())
    sentences = _SENTENCE_ENDS.split(first)
    more = [" ".join(sentences[SHOWN:]), *others]
    yield draft.heading(3, folio.line(sentence.said), anchor=sentence.id, css="pb-sentence")
    standings = _standings(sentence, folio)
    yield Aside(standings + "· from " + folio.line(sentence.where), "pb-said-where")
    yield Block([folio.prose(" ".join(sentences[:SHOWN]))])
    regime = PARAGRAPH.format(folio.line(sentence.regime))
    correction = folio.prose("\n\n".join(filter(None, more)))
    stakes = PARAGRAPH.format(folio.line(sentence.stakes)) if sentence.stakes else Markup()
    evidence = Unfound([*_evidence(sentence, row, folio)])
    title, content = Markup("Conditions, source, evidence"), (regime, correction, stakes, evidence)
    yield Fold(title, content, is_found=True)


def _evidence(sentence: Statement, row: JudgedClaim, folio: Folio) -> Iterator[Element | Markup]:
    """The source of a sentence, the claim that judges it, and a program that shows the effect."""
    if sentence.source:
        source = folio.book.references[sentence.source]
        yield Aside(SOURCE.format(source.url, source.title, source.where))
    if sentence.program:
        yield Aside(_download(sentence.program, folio), "pb-listing-title")
    yield Aside(_judged(row, folio))
    machine = measured_by(folio.judged(sentence.claim), folio)
    again = command_words(command(row.outcome.runs, machine, folio.book.reference.name))
    natures = {run.nature for run in map(folio.book.run, row.outcome.runs) if run}
    verb = "Simulate" if natures == {"simulated"} else "Measure"
    yield Aside(AGAIN.format(verb, again), "pb-listing-title")
    if sentence.program:
        yield from _program(sentence.program, folio)


def _download(path: str, folio: Folio) -> Markup:
    """Where the program of a run is, and the command that runs it where it was downloaded to."""
    file = claim_checks.program_path(folio.book, path)
    at, name = folio.root + (listed_code.download_path(file) or ""), file.rpartition("/")[2]
    needs = folio.line(folio.book.home.programs_need or "")
    return TO_DOWNLOAD.format(at, name, _torchrun(path, name, folio), needs)


def _program(path: str, folio: Folio) -> Iterator[Element | Markup]:
    """The program of a run, which several sentences may share, and what it printed."""
    file = claim_checks.program_path(folio.book, path)
    sharing = (other.uses for other in folio.book.statements.values() if other.program == path)
    yield Aside(USES.format(folio.line(next(filter(None, sharing)))))
    code = highlighted(listed_code.listed(folio.book.root, file, None))
    here = Aside(HERE.format(_torchrun(path, file, folio)), "pb-listing-title")
    yield Block([here, LISTED.format(code)], "pb-listing")
    yield printed(path, folio)


def _torchrun(path: str, file: str, folio: Folio) -> Markup:
    run = folio.run(path)
    assert run is not None, path  # the checks have looked
    return command_words(f"torchrun --nproc-per-node {run.world_size} {file}")


def _judged(row: JudgedClaim, folio: Folio) -> Markup:
    """The claim that judges a sentence, with its verdict and its runs."""
    run = Markup('<a href="{}{}"><code>{}</code></a>')
    runs = [
        run.format(folio.root, folio.place_of(name), breakable(name)) for name in row.outcome.runs
    ]
    sides = "Verdict"
    if not row.is_repeated:
        sides = Markup("Predicted {}, observed {}").format(row.predicted, row.observed)
    regime = Markup(' <small class="pb-regime">Regime: {}.</small>').format(row.regime)
    return Markup("The evidence: {} {}: {}.{} {}: {}").format(
        row.says, sides, row.link, regime if row.regime else "",
        "Run" if len(runs) == 1 else "Runs", Markup(", ").join(runs),
    )  # fmt: skip


def _standings(sentence: Statement, folio: Folio) -> Markup:
    """How the sentence stands on the machine of its runs and those that agree, then elsewhere.

    A machine on which it is untested says nothing beside one on which it is.
    """
    here = folio.judged(sentence.claim)
    own = folio.at_hand.judged(sentence.claim)  # where the reference stands in
    others = {
        machine: there.judged_claims[sentence.claim]
        for machine, there in folio.other_outcomes.items()
        if sentence.claim in there.judged_claims
    }
    judged: dict[str, str] = {}
    for machine, outcome in ((measured_by(here, folio), here), (own.machine, own), *others.items()):
        if machine:
            judged.setdefault(machine, _standing(sentence, outcome))
    first, *_ = judged.values()
    by_standing: dict[str, list[str]] = {}
    for machine, word in judged.items():
        if word == first or word != "untested":
            by_standing.setdefault(word, []).append(machine)
    html = Markup('<span>{0}<strong class="pb-standing {2}">{1}</strong> </span>')
    spans = []
    for word, machines in by_standing.items():
        whose = Markup(", ").join(map(unbroken, machines)) + ": " if len(by_standing) > 1 else ""
        spans.append(html.format(whose, *STANDINGS[word]))
    return Markup().join(spans)


def _standing(sentence: Statement, outcome: Judged) -> str:
    """How a sentence stands after its run: its verdict where the runs of a machine bear it out."""
    if claim_checks.judgement(sentence, outcome) == "untested":
        return "untested"
    return sentence.verdict if claim_checks.bears_out(sentence, outcome) else "otherwise"
