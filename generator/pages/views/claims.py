"""Claims as pages show them: what was predicted and observed, on each machine, and the verdict.

A lesson shows the claims of a section as a table. The page of the experiment that a claim rests on
has all of it, on every machine that has measured what it needs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from generator.content.claim import Claim, Domain, NumberTolerance, Reference
from generator.pages.elements.element import Aside, Element, Fold, ListOfLines
from generator.pages.elements.tables import Table
from generator.pages.environment import counted, unbroken
from generator.printing.folio import Folio, breakable
from generator.printing.markdown import plain
from generator.values import claim_formula, regime, units
from generator.values.claim_formula import SIGNS, in_same_form, off_by
from generator.values.machines import disagree
from generator.values.value import Value, numeric
from generator.values.verdicts import UNDECIDED, Judged
from runners.core.trace.fields import NBSP

MAX_DIGITS = 12
CLOSE, MORE_DIGITS = 1e-3, 6  # where three digits would make much of a difference
DECIDED = ("holds", "does_not_hold")  # which both sides explain
CONTRARY = ("does_not_hold", "not_distinguishable")  # what a section says outside its fold
BOUNDS = {"at_most": 1, "below": 1, "at_least": -1, "above": -1}  # by the sign of what is left
MOST_OPEN = 8  # claims of a page; of more, those that hold are folded
Lessons = Mapping[str, Sequence[tuple[str, str]]]  # by claim, each a topic and a mode


@dataclass(frozen=True)
class Verdict:
    """A verdict and both sides of its claim, as a page prints them."""

    words: str
    css: str
    predicted: Markup
    observed: Markup
    caption: str  # the marks that all numbers of its table have


# --- in a lesson


@dataclass(frozen=True)
class JudgedClaim(Verdict):
    """A claim and its verdict; without numbers that the section has already."""

    claim: Claim
    href: str
    says: Markup
    runs: Sequence[str]
    formula: Markup | None
    regime: Markup
    is_repeated: bool
    is_contrary: bool


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
    is_contrary = not is_repeated and outcome.verdict in CONTRARY
    has_sides = is_contrary or (always_sides and not is_repeated)
    return JudgedClaim(
        *_verdict(outcome, folio, has_sides=has_sides),
        claim=claim,
        href=folio.root + folio.claim_place(name),
        says=folio.line(claim.says),
        runs=outcome.runs,
        formula=_formula_of(claim, folio),
        is_repeated=is_repeated,
        is_contrary=is_contrary,
        regime=_regime_of(outcome, folio) if _is_of_a_machine(folio, claim) else Markup(),
    )


def verdict_link(row: JudgedClaim) -> Markup:
    """The words of a verdict, as a link to its claim."""
    link = Markup('<a class="pb-verdict {}" href="{}">{}</a>')
    return link.format(row.css, row.href, row.words)


def regime_words(row: JudgedClaim) -> Markup:
    """The regime of a claim behind its sentence; nothing where it has none."""
    small = Markup(' <small class="pb-regime">Regime: {}</small>')
    return small.format(row.regime) if row.regime else Markup()


def judged_table(rows: Sequence[JudgedClaim], has_formula: bool = False) -> Table:
    """Claims with their verdicts; a summary gives their formulas as well."""
    cells = [
        [row.says + regime_words(row), *([row.formula or "–"] if has_formula else []),
         row.predicted, row.observed, verdict_link(row)]
        for row in rows
    ]  # fmt: skip
    titles = ["Claim", *(["Formula"] if has_formula else []), "#Predicted", "#Observed", "Verdict"]
    return Table(titles, cells, rows[0].caption, is_found=not has_formula, is_headed=False)


def verdict_table(rows: Sequence[JudgedClaim]) -> Iterator[Element]:
    """A table of claims; those that the section has just shown with their numbers are named."""
    if new := [row for row in rows if not row.is_repeated]:
        yield judged_table(new)
    if repeated := [row for row in rows if row.is_repeated]:
        named = [row.says + " " + verdict_link(row) + regime_words(row) for row in repeated]
        yield ListOfLines(named, css="pb-sources")


def backing(names: Sequence[str], sources: Sequence[str], folio: Folio) -> Iterator[Element]:
    """Claims with their verdicts and references, folded; a contrary verdict stands above."""
    judged = verdict_rows(names, folio)
    for row in (row for row in judged if row.is_contrary):
        own = verdict_row(row.claim.id, folio)  # with the marks that the table says once
        says = Markup(
            "In the runs of this page, this claim {}"
            '<span class="pb-verdict {}">{}</span>: “{}” (predicted {}, observed {})'
        )
        verb = "" if "hold" in own.words else "is "
        yield Aside(says.format(verb, own.css, own.words, own.says, own.predicted, own.observed))
    content: list[Element] = [*verdict_table(judged)]
    if sources:
        references = [reference_words(folio.book.references[name], folio) for name in sources]
        content.append(ListOfLines(references, css="pb-sources", line_css="pb-cited"))
    yield Fold(Markup("Evidence"), content, "pb-backing")


def reference_words(reference: Reference, folio: Folio) -> Markup:
    """A source: its title as a link, where in it, and what it says."""
    words = Markup('<a href="{}" rel="noreferrer">{}</a>, {}. {}')
    title, where = breakable(reference.title), breakable(reference.where)
    folio.texts.update((reference.title, reference.where))
    return words.format(reference.url, title, where, folio.line(reference.says))


def _verdict(
    outcome: Judged, folio: Folio, *, has_sides: bool = True
) -> tuple[str, str, Markup, Markup, str]:
    """The fields of `Verdict`; both sides are empty without `has_sides`."""
    predicted, observed = sides_of(outcome, folio) if has_sides else (Markup(), Markup())
    words = outcome.verdict.replace("_", " ")
    return words, css_of(outcome), predicted, observed, folio.caption


def _is_of_a_machine(folio: Folio, claim: Claim) -> bool:
    """Whether a claim reads times or memory, which batch, device and ranks decide."""
    read = [field for side in folio.evidence.sides(claim) for field in side.measured]
    return any(".timing." in field or ".memory." in field for field in read)


def runs_behind(claims: Sequence[str], folio: Folio) -> list[str]:
    """The runs that claims were judged on, each once."""
    return list(dict.fromkeys(run for claim in claims for run in folio.judged(claim).runs))


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


def _formula_of(claim: Claim, folio: Folio) -> Markup | None:
    """A claim's rule: as its author wrote it, or else as its expressions print."""
    formula = claim_formula.formula_of(claim)
    return folio.line(formula) if formula else None


def _regime_of(outcome: Judged, folio: Folio, has_turns: bool = True) -> Markup:
    """Under which conditions the runs of a claim were measured."""
    book = folio.evidence.for_runs(outcome.runs).book
    runs = {name: run for name in outcome.runs if (run := book.run(name))}
    return folio.line(regime.line(outcome.claim, runs, folio.strategy, has_turns))


# --- on the page of an experiment


@dataclass(frozen=True)
class MachineVerdict(Verdict):
    """A verdict on a machine, and on others where it prints alike."""

    machines: Sequence[str]
    regime: Markup
    heads: Sequence[str]  # of both sides
    off: Markup  # how far
    says: Markup
    is_showed: bool  # says what the runs showed, else why
    differs: bool  # from that on the machine shown
    why: Markup  # it is not decided

    @property
    def names(self) -> Markup:
        """The machines in words."""
        return Markup(", ").join(map(unbroken, self.machines))


@dataclass(frozen=True)
class FoldedClaim(Element):
    """A claim, folded below the first verdict that runs decide: its rule, and all verdicts."""

    IS_FOUND = False
    claim: Claim
    says: Markup
    runs: Sequence[str]
    formula: Markup | None
    domain: Markup
    tolerance: str
    because: Markup  # it is that large
    source: Reference | None
    regime: Markup
    first: MachineVerdict
    elsewhere: str  # the machine of the first verdict, where that is named
    differs: bool
    table: Table
    showed: Sequence[MachineVerdict]  # those that say something, or one of them where all say it
    lessons: Sequence[tuple[str, str]]  # that use it, each its address and title


def proofs(
    names: Sequence[str], lessons: Lessons, folio: Folio, home: str = ""
) -> Iterator[Element]:
    """Claims with their verdicts by machine; where they are many, those that hold are folded.

    A verdict names its machine where that is not `home`, or else that of the first claim. Runs are
    named only where claims share their sentence.
    """
    sentences = {name: folio.line(folio.book.claims[name].says) for name in names}
    alike = Counter(map(plain, sentences.values()))
    folded: list[tuple[str, FoldedClaim]] = []
    for name, sentence in sentences.items():
        rows = list(_by_machine(name, folio))
        home = home or rows[0].machines[0]
        is_alone = alike[plain(sentence)] == 1
        proof = _proof(name, sentence, rows, lessons.get(name, ()), home, is_alone, folio)
        holds = folio.at_hand.judged(name).verdict == "holds" and not proof.differs
        if holds and len(names) > MOST_OPEN:
            folded.append((rows[0].machines[0], proof))
        else:
            yield proof
    if folded:
        parts = []
        for machine, number in sorted(Counter(machine for machine, _ in folded).items()):
            words = " claims that hold" if number != 1 else " claim that holds"
            on = " on " + unbroken(machine) if machine != home else ""
            parts.append(counted(number) + words + on)
        yield Fold(Markup(", ").join(parts), [proof for _, proof in folded], is_found=True)


def _proof(
    name: str, sentence: Markup, rows: Sequence[MachineVerdict],
    lessons: Sequence[tuple[str, str]], home: str, is_alone: bool, folio: Folio,
) -> FoldedClaim:  # fmt: skip
    claim, here = folio.book.claims[name], folio.at_hand.judged(name)
    folio.runs.update(here.runs)
    shared, verdicts = _merged(rows)
    first = next((verdict for verdict in verdicts if not verdict.why), verdicts[0])
    because = claim.tolerance.because if claim.tolerance else None
    told = [verdict for verdict in verdicts if verdict.says]
    is_alike = len({plain(verdict.says) for verdict in verdicts}) == 1
    titles = {topic.id: topic.file.title for topic in folio.book.topics}
    return FoldedClaim(
        claim=claim,
        says=sentence,
        runs=[] if is_alone else [run.partition(".")[2] for run in here.runs],
        formula=_formula_of(claim, folio),
        domain=_domain_of(claim, folio),
        tolerance=tolerance_of(claim.tolerance, here.observed),
        because=folio.line(because) if because else Markup(),
        source=folio.book.references[claim.source] if claim.source else None,
        regime=shared if rows[1:] else _regime_of(here, folio),
        first=first,
        elsewhere=first.machines[0] if first.machines[0] != home else "",
        differs=any(row.differs for row in rows),
        table=_table(verdicts, first.heads, here, folio),
        showed=[replace(told[0], machines=())] if told and is_alike else told,
        lessons=[
            (f"{folio.root}topics/{topic}/{mode}.html",
             f"{plain(folio.line(titles[topic]))}: {folio.ui['modes'][mode]}")
            for topic, mode in lessons
        ],
    )  # fmt: skip


def _table(
    verdicts: Sequence[MachineVerdict], heads: Sequence[str], here: Judged, folio: Folio
) -> Table:
    """A row for each verdict."""
    traces = {path.partition(".")[0] for path in here.runs}
    is_of_planner = {folio.book.traces[name].is_of_planner for name in traces} == {True}
    has_off = any(verdict.off for verdict in verdicts)
    small, words = Markup("<br><small>{}</small>"), Markup('<span class="pb-verdict {}">{}</span>')
    rows = [
        [
            (escape("no device") if is_of_planner else verdict.names)
            + (small.format(verdict.regime) if verdict.regime else ""),
            verdict.predicted, verdict.observed, *([verdict.off or "–"] if has_off else []),
            words.format(verdict.css, verdict.words),
        ]
        for verdict in verdicts
    ]  # fmt: skip
    numbers = [f"#{title}" for title in (*heads, *(["Off by"] if has_off else []))]
    return Table(["Machine", *numbers, "Verdict"], rows, verdicts[0].caption, is_found=False)


def _merged(rows: Sequence[MachineVerdict]) -> tuple[Markup, list[MachineVerdict]]:
    """The regime that machines share; verdicts, merged where they print alike, with the rest."""
    decided = [row for row in rows if row.regime and not row.why] or rows[:1]
    regimes = [row.regime.split("; ") for row in decided]
    words = [[*map(plain, conditions)] for conditions in regimes]
    shared = [part for part in regimes[0] if all(plain(part) in conditions for conditions in words)]
    by_texts: dict[tuple[str, ...], list[MachineVerdict]] = {}
    for row in rows:
        own = [part for part in plain(row.regime).split("; ") if part not in map(plain, shared)]
        texts = (row.predicted, row.observed, row.off, row.words, row.says, "; ".join(own))
        by_texts.setdefault(tuple(map(plain, texts)), []).append(row)
    return Markup("; ").join(shared), [
        replace(alike[0], machines=[row.machines[0] for row in alike], regime=escape(texts[-1]))
        for texts, alike in by_texts.items()
    ]


def _by_machine(name: str, folio: Folio) -> Iterator[MachineVerdict]:
    """A claim on the machine shown, then on the others that have measured what it needs."""
    here = folio.at_hand.judged(name)
    holder = measured_by(here, folio)
    outcomes = [(here, holder, folio)]
    for machine, there in folio.other_outcomes.items():
        if name in there.judged_claims and machine != holder:
            outcomes.append((there.judged_claims[name], machine, folio.over(there.evidence)))
    is_headed = here.observed is not None and here.observed.kind == "simulated"
    page = folio.without_mark("simulated") if is_headed else folio
    page = page.for_table(
        v for outcome, *_ in outcomes for v in (outcome.predicted, outcome.observed, _off(outcome))
    )
    for outcome, machine, machine_folio in outcomes:
        yield _judged_row(outcome, machine, machine_folio, page, differs=disagree(here, outcome))


def measured_by(outcome: Judged, folio: Folio) -> str:
    """The machine behind a verdict: the reference machine where it stands in."""
    trace = folio.book.holder(outcome.runs[0]) if outcome.runs else None
    return outcome.machine or (trace and trace.measured_on) or folio.book.machine.name


def _judged_row(
    outcome: Judged, machine: str, local: Folio, page: Folio, *, differs: bool
) -> MachineVerdict:
    """A verdict with its numbers on the page, and with its words by the machine's evidence."""
    showed = outcome.claim.sentence_for(outcome.verdict)
    text = showed or (outcome.explanation if outcome.verdict not in DECIDED else "")
    heads = ["Predicted", "Observed"]
    if outcome.observed and outcome.observed.nature == "simulated":
        heads[1] = outcome.observed.kind.capitalize()
        if outcome.predicted and outcome.predicted.kind == "cited":
            heads[0] = "Cited"
    off = _off(outcome)
    return MachineVerdict(
        *_verdict(outcome, page),
        machines=[machine],
        regime=_regime_of(outcome, local, has_turns=False),
        heads=heads,
        off=page.show(off) if off else Markup(),
        says=local.line(text) if text else Markup(),
        is_showed=bool(showed),
        differs=differs,
        why=local.line(outcome.explanation) if outcome.verdict in UNDECIDED else Markup(),
    )


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
    if observed is not None and observed.unit == units.SHARE:
        return _points(tolerance.slack(0))
    unit = observed.unit if observed else units.PLAIN
    return units.printed(tolerance.slack(0), unit, units.Form(way="written"))


def _domain_of(claim: Claim, folio: Folio) -> Markup:
    """Where a claim holds, and why not elsewhere; empty where its author does not say."""
    if isinstance(claim.domain, Domain):
        places = escape(", ".join([*(claim.domain.device or []), *(claim.domain.backend or [])]))
        because = claim.domain.because
        return Markup("{} ({})").format(places, folio.line(because)) if because else places
    return Markup(escape("holds everywhere" if claim.domain else ""))
