"""Claims as pages show them: what was predicted and observed, on each machine, and the verdict.

A lesson shows the claims of a section as a table. The page of the experiment that a claim rests on
has all of it, on every machine that has measured what it needs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from proofbook.generator.content.claim import Claim, Domain, NumberTolerance, Reference
from proofbook.generator.pages.elements.element import Element, Fold, ListOfLines, Made
from proofbook.generator.pages.elements.tables import Table, with_units
from proofbook.generator.pages.environment import counted, label, unbroken
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import plain
from proofbook.generator.values import claim_formula, regime, units
from proofbook.generator.values.claim_formula import SIGNS, in_same_form, off_by
from proofbook.generator.values.machines import disagree
from proofbook.generator.values.value import Value, numeric
from proofbook.generator.values.verdicts import UNDECIDED, Judged
from proofbook.runners.core.trace.fields import NBSP

MAX_DIGITS = 12
CLOSE, MORE_DIGITS = 1e-3, 6  # where three digits would make much of a difference
DECIDED = ("holds", "does_not_hold")  # which both sides explain
CONTRARY = ("does_not_hold", "not_distinguishable")  # what a section says outside its fold
BOUNDS = {"at_most": 1, "below": 1, "at_least": -1, "above": -1}  # by the sign of what is left
MOST_OPEN = 8  # claims of a page; of more, those that hold are folded
Lessons = Sequence[tuple[str, str]]  # each a topic and a mode


@dataclass(frozen=True)
class Verdict:
    """A verdict and both sides of its claim, as a page prints them."""

    outcome: Judged
    predicted: Markup
    observed: Markup
    caption: str  # the marks that all numbers of its table have

    @property
    def words(self) -> str:
        """The verdict in words."""
        return self.outcome.verdict.replace("_", " ")

    @property
    def css(self) -> str:
        """The class of these words."""
        return css_of(self.outcome)


# --- in a lesson


@dataclass(frozen=True)
class JudgedClaim(Verdict, Element):
    """A claim and its verdict; by itself, it prints that this is contrary."""

    href: str
    says: Markup
    formula: Markup
    regime: Markup
    is_repeated: bool  # so it has no numbers, which the section has already

    @property
    def is_contrary(self) -> bool:
        """Whether a section says so outside its fold."""
        return not self.is_repeated and self.outcome.verdict in CONTRARY

    @property
    def link(self) -> Markup:
        """The words of its verdict, as a link to it."""
        link = Markup('<a class="pb-verdict {}" href="{}">{}</a>')
        return link.format(self.css, self.href, self.words)

    def parts(self) -> Iterator[Markup]:
        """All that it prints."""
        yield Markup(self)

    @property
    def regime_words(self) -> Markup:
        """Its regime behind its sentence; nothing where it has none."""
        small = Markup(' <small class="pb-regime">Regime: {}</small>')
        return small.format(self.regime) if self.regime else Markup()


def cited_sources(
    documents: Sequence[Sequence[tuple[Reference, Markup]]], of_rows: Sequence[Reference] = (),
    *, is_anchored: bool = False,
) -> Made:  # fmt: skip
    """Documents, each with what its places say, and those of published tables."""
    fields = {"documents": documents, "of_rows": of_rows, "is_anchored": is_anchored}
    return Made("CitedSources", is_found=False, **fields)


def verdict_rows(names: Sequence[str], folio: Folio) -> list[JudgedClaim]:
    """A row for each of a section's claims, by name; clears `folio.shown_claims`."""
    repeated = folio.shown_claims
    outcomes = [folio.judged(name) for name in names if name not in repeated]
    page = folio.for_table(
        side for outcome in outcomes for side in (outcome.predicted, outcome.observed)
    )
    rows = [verdict_row(name, folio if name in repeated else page) for name in names]
    folio.shown_claims.clear()
    return rows


def verdict_row(name: str, folio: Folio, *, always_sides: bool = True) -> JudgedClaim:
    """A claim, by name, and its verdict; without numbers that the section has already.

    Where its sides are not always shown, only a contrary verdict has them.
    """
    claim, outcome = folio.book.claims[name], folio.judged(name)
    folio.runs.update(outcome.runs)
    folio.linked_claims.add(name)
    is_repeated = name in folio.shown_claims
    has_sides = not is_repeated and (always_sides or outcome.verdict in CONTRARY)
    return JudgedClaim(
        outcome,
        *(sides_of(outcome, folio) if has_sides else (Markup(), Markup())),
        folio.caption,
        folio.root + folio.claim_place(name),
        folio.line(claim.says),
        in_prose(claim_formula.formula_of(claim), folio),
        _regime_of(outcome, folio) if _is_of_a_machine(folio, claim) else Markup(),
        is_repeated,
    )


def in_prose(formula: str | None, folio: Folio) -> Markup:
    """A formula with the letters of the text around it; its numbers have no provenance."""
    return label(folio.line(claim_formula.as_prose(formula))) if formula else Markup()


def judged_table(rows: Sequence[JudgedClaim], has_formula: bool = False) -> Table:
    """Claims with their verdicts; a summary gives their formulas as well."""
    titles = ["Claim", "Formula", "#Predicted", "#Observed", "Verdict"]
    cells = [
        [row.says + row.regime_words, row.formula or "–", row.predicted, row.observed, row.link]
        for row in rows
    ]
    for row in () if has_formula else (titles, *cells):
        del row[1]
    return Table(titles, cells, rows[0].caption, is_found=not has_formula, is_headed=False)


def verdict_table(rows: Sequence[JudgedClaim]) -> Iterator[Element]:
    """A table of claims; those that the section has just shown with their numbers are named."""
    if new := [row for row in rows if not row.is_repeated]:
        yield judged_table(new)
    if named := [row.says + " " + row.link + row.regime_words for row in rows if row.is_repeated]:
        yield ListOfLines(named, css="pb-sources")


def backing(names: Sequence[str], sources: Sequence[str], folio: Folio) -> Iterator[Element]:
    """Claims with their verdicts and references, folded; a contrary verdict stands above."""
    judged = verdict_rows(names, folio)
    for row in judged:
        if row.is_contrary:  # with the marks that the table says once
            yield verdict_row(row.outcome.claim.id, folio)
    content = [*verdict_table(judged)]
    if sources:
        references = [cited(folio.book.references[name], folio) for name in sources]
        content.append(cited_sources([[reference] for reference in references]))
    yield Fold(Markup("Evidence"), content, "pb-backing")


def cited(reference: Reference, folio: Folio) -> tuple[Reference, Markup]:
    """A source, and what it says."""
    folio.texts.update((reference.title, reference.where))
    return reference, folio.line(reference.says)


def _is_of_a_machine(folio: Folio, claim: Claim) -> bool:
    """Whether a claim reads times or memory, which batch, device and ranks decide."""
    read = [field for side in folio.evidence.sides(claim) for field in side.measured]
    return any(".timing." in field or ".memory." in field for field in read)


def sides_of(outcome: Judged, folio: Folio) -> tuple[Markup, Markup]:
    """Pair of HTML: a judged claim's prediction, behind its relation's sign, and observation."""
    predicted, observed = _readable(outcome)
    is_bare = predicted is None or predicted.is_digest
    relation = outcome.claim.relation
    sign = "" if is_bare or relation == "equals" else SIGNS[relation] + NBSP
    relation_and_value = Markup("{}{}").format(sign, _side(predicted, folio, outcome.claim.id))
    return relation_and_value, _side(observed, folio, outcome.claim.id)


def _readable(outcome: Judged) -> tuple[Value | None, Value | None]:
    """Both sides as a person reads them: in one form, and different where the verdict says so.

    Of digests a person reads whether they are equal to the bit.
    """
    predicted, observed = in_same_form(outcome.predicted, outcome.observed)
    is_equal, holds = outcome.claim.relation == "equals", outcome.verdict == "holds"
    if predicted is None or observed is None:
        return predicted, observed
    if predicted.is_digest or observed.is_digest:
        words = {True: "bitwise identical", False: "different"}
        came_out = words[is_equal == holds]
        return replace(predicted, words=words[is_equal]), replace(observed, words=came_out)
    is_text = isinstance(predicted.number, str) or isinstance(observed.number, str)
    if is_text or predicted.number == observed.number:
        return predicted, observed
    if is_equal and holds:
        is_close = abs(numeric(observed) - numeric(predicted)) < CLOSE * abs(numeric(observed))
        more = MORE_DIGITS if is_close and str(predicted) != str(observed) else None
        return predicted.formatted(digits=more), observed.formatted(digits=more)
    for digits in range(5, MAX_DIGITS + 1):
        if str(predicted) != str(observed):
            break
        predicted, observed = predicted.formatted(digits=digits), observed.formatted(digits=digits)
    return predicted, observed


def _side(value: Value | None, folio: Folio, claim: str) -> Markup:
    """What a claim predicts or observes, printed; words without their underscores."""
    if value is None:
        return Markup('<span class="pb-absent">no evidence</span>')
    if isinstance(value.number, str):
        value = replace(value, number=value.number.replace("_", " "))
    return folio.show(value, claim)


def css_of(outcome: Judged) -> str:
    """The CSS class of a verdict."""
    return f"pb-{outcome.verdict.replace('_', '-')}"


def _regime_of(outcome: Judged, folio: Folio, has_turns: bool = True) -> Markup:
    """Under which conditions the runs of a claim were measured."""
    book = folio.evidence.for_runs(outcome.runs).book
    runs = {name: run for name in outcome.runs if (run := book.run(name))}
    return folio.line(regime.line(outcome.claim, runs, folio.strategy, has_turns))


# --- on the page of an experiment


@dataclass(frozen=True)
class MachineVerdict(Verdict):
    """A verdict on a machine, and on others where it prints alike."""

    machines: list[str]
    regime: Markup
    off: Markup  # how far
    says: Markup  # what the runs showed, else why
    differs: bool  # from that on the machine shown

    @property
    def is_undecided(self) -> bool:
        """Whether the runs of its machine decide nothing."""
        return self.outcome.verdict in UNDECIDED


def proofs(
    names: Sequence[str], lessons: Mapping[str, Lessons], folio: Folio, home: str = ""
) -> Iterator[Element]:
    """Claims with their verdicts by machine; where they are many, those that hold are folded.

    A verdict names its machine where that is not `home`, or else that of the first claim. Runs are
    named only where claims share their sentence.
    """
    sentences = {name: folio.line(folio.book.claims[name].says) for name in names}
    alike = Counter(map(plain, sentences.values()))
    folded: list[Made] = []
    for name, sentence in sentences.items():
        verdicts, names_runs = _by_machine(name, folio), alike[plain(sentence)] > 1
        home = home or verdicts[0].machines[0]
        proof = _proof(sentence, names_runs, verdicts, lessons.get(name, ()), home, folio)
        holds = verdicts[0].words == "holds" and not any(verdict.differs for verdict in verdicts)
        if holds and len(names) > MOST_OPEN:
            folded.append(proof)
        else:
            yield proof
    if folded:
        machines = Counter(proof.verdicts[0].machines[0] for proof in folded)
        parts = [
            counted(number) + (" claims that hold" if number != 1 else " claim that holds")
            + (" on " + unbroken(machine) if machine != home else "")
            for machine, number in sorted(machines.items())
        ]  # fmt: skip
        yield Fold(Markup(", ").join(parts), folded, is_found=True)


def _proof(
    says: Markup, names_runs: bool, by_machine: Sequence[MachineVerdict],
    lessons: Lessons, home: str, folio: Folio,
) -> Made:  # fmt: skip
    """Folded below the first verdict that runs decide: its rule, and all verdicts."""
    here, book = by_machine[0].outcome, folio.book
    domain, tolerance = here.claim.domain, here.claim.tolerance
    folio.runs.update(here.runs)
    folio.natures.add(by_machine[0].caption)
    shared, verdicts = _merged(by_machine)
    rows = [[verdict.predicted, verdict.observed, verdict.off or "–"] for verdict in verdicts]
    titles = {topic.id: topic.file.title for topic in book.topics}
    heads, numbers = with_units("###", rows)
    return Made(
        "FoldedClaim", is_found=False, says=says, names_runs=names_runs,
        formula=in_prose(claim_formula.formula_of(here.claim), folio),
        only_there=folio.line((isinstance(domain, Domain) and domain.because) or ""),
        tolerance=tolerance_of(tolerance, here.observed),
        because=folio.line((tolerance and tolerance.because) or ""),
        regime=shared if by_machine[1:] else _regime_of(here, folio),
        verdicts=verdicts, home=home, units=heads, numbers=numbers, book=book, root=folio.root,
        has_no_machine=all(book.traces[run.partition(".")[0]].nature for run in here.runs),
        lessons=[(topic, folio.line(titles[topic]), mode) for topic, mode in lessons],
    )  # fmt: skip


def _merged(rows: Sequence[MachineVerdict]) -> tuple[Markup, list[MachineVerdict]]:
    """The regime that machines share; verdicts, merged where they print alike, with the rest."""
    decided = [row for row in rows if row.regime and not row.is_undecided] or rows[:1]
    regimes = [row.regime.split("; ") for row in decided]
    words = [[*map(plain, conditions)] for conditions in regimes]
    shared = [part for part in regimes[0] if all(plain(part) in conditions for conditions in words)]
    merged: dict[tuple[str, ...], MachineVerdict] = {}
    for row in rows:
        own = [part for part in plain(row.regime).split("; ") if part not in map(plain, shared)]
        alone = replace(row, machines=[], regime=escape("; ".join(own)))
        texts = (row.predicted, row.observed, row.off, row.words, row.says, alone.regime)
        merged.setdefault(tuple(map(plain, texts)), alone).machines.extend(row.machines)
    return Markup("; ").join(shared), [*merged.values()]


def _by_machine(name: str, folio: Folio) -> list[MachineVerdict]:
    """A claim on the machine shown, then on the others that have measured what it needs."""
    here = folio.at_hand.judged(name)
    measured = [(here, measured_by(here, folio), folio)]
    for machine, there in folio.other_outcomes.items():
        if name in there.judged_claims and machine != measured[0][1]:
            measured.append((there.judged_claims[name], machine, folio.over(there.evidence)))
    is_headed = here.observed is not None and here.observed.kind == "simulated"
    page = folio.without_mark("simulated") if is_headed else folio
    page = page.for_table(
        v for outcome, *_ in measured for v in (outcome.predicted, outcome.observed, _off(outcome))
    )
    verdicts = []
    for outcome, machine, local in measured:
        off, showed = _off(outcome), outcome.claim.sentence_for(outcome.verdict)
        why = outcome.explanation if outcome.verdict not in DECIDED else ""
        verdicts.append(MachineVerdict(
            outcome, *sides_of(outcome, page), page.caption, [machine],
            _regime_of(outcome, local, has_turns=False), page.show(off) if off else Markup(),
            local.line(showed or why), disagree(here, outcome),
        ))  # fmt: skip
    return verdicts


def measured_by(outcome: Judged, folio: Folio) -> str:
    """The machine behind a verdict: the reference machine where it stands in."""
    trace = folio.book.holder(outcome.runs[0]) if outcome.runs else None
    return outcome.machine or (trace and trace.measured_on) or folio.book.machine.name


def _off(outcome: Judged) -> Value | None:
    """How far off a prediction is, also a bound: as a share of the observation, else as it is."""
    relation, tolerance = outcome.claim.relation, outcome.claim.tolerance
    is_name = outcome.observed is not None and outcome.observed.unit == units.ORDINAL
    if is_name or not (relation == "equals" or (relation in BOUNDS and tolerance)):
        return None
    value = off_by(outcome.predicted, outcome.observed, tolerance)
    if value is not None and relation in BOUNDS and numeric(value) * BOUNDS[relation] >= 0:
        return None  # within the bound itself
    if value is not None and value.form.way != "error" and value.unit == units.SHARE:
        value = replace(value, number=_points(float(numeric(value))), unit=units.TEXT)
    return value


def _points(share: float) -> str:
    """A difference between two shares, which is no share of either."""
    sign = "−" if share < 0 else ""
    return f"{sign}{abs(share) * 100:.3g}{NBSP}points"


def tolerance_of(tolerance: NumberTolerance | None, observed: Value | None) -> str:
    """A tolerance as text: epsilons, per cent, points, or the observed unit; empty for none."""
    if tolerance is None:
        return ""
    if tolerance.epsilons is not None:
        return f"{tolerance.epsilons:,} epsilons of {tolerance.dtype}"
    if tolerance.relative is not None:
        return f"{tolerance.relative * 100:g}%"
    unit = observed.unit if observed else units.PLAIN
    if unit == units.SHARE:
        return _points(tolerance.slack(0))
    return units.printed(tolerance.slack(0), unit, units.Form(way="written"))
