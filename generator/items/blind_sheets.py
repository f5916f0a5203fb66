"""Blind sheets: what a reader sees who is to choose from rules and numbers alone.

In: an item or a claim, and the evidence. Out: a `Sheet`, as text. An item's sheet holds the
question, its options in an order of their own, and the rules that decide them with the numbers that
they read: no key, no explanation, no claim's sentence, and no verdict. A claim's sheet holds its
rule, its numbers and its sentences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

from generator.content.claim import Claim
from generator.content.errors import ContentError
from generator.content.exhibit import Listing
from generator.content.listed_code import source
from generator.content.quiz import (
    Blank,
    Choice,
    Complete,
    FaultyLine,
    Item,
    Match,
    Number,
    Order,
    Predict,
    Several,
    Table,
)
from generator.evidence import law_formula, quantifier, regime, units
from generator.evidence.paths import Evaluation, Node
from generator.evidence.value import AbsentError, ExpressionError, Value
from generator.evidence.verdicts import sides
from generator.items.item_seen import option_text
from generator.items.keys import Key, asked_for, key_of
from generator.items.rules import claim_digest, claims_of, item_digest, parts
from runners.traces.measured import SampledSeconds

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

HOW_TO_READ = """\
Each sheet is read alone: choose what its rules and numbers decide, not what you know. Where they do
not decide it, choose what they make likeliest, and say the doubt in words.

A rule compares what was observed with what was predicted. Where both are samples of a time,
"faster" holds if the quartile range of the observed lies below that of the predicted, "slower" if
it lies above; the two are not distinguishable if the ranges overlap, and with fewer than five
samples there are too few.

Answers go into one YAML file: by (initials), read_on (the day), and under items: or claims: the id
of each sheet with the answer, or with {choice: …, doubt: …}; for a claim {entailed: …, doubt: …}.
"yes" and "no" stand in quotes.
"""
MOST_LISTED = 24  # numbers of a list, or fields that a rule reads
ASKED = {
    "choice": "Which one is right? Answer with its letter.",
    "several": "Which are right? Answer with a list of letters: [A, C].",
    "order": "Put them in the order asked for. Answer with the letters, first to last: [B, A, C].",
    "match": "Which letter belongs to each number? Answer with the letters in the order of the "
    "numbers: [B, A, C].",
    "faulty_line": "Which line is at fault? Answer with its letter.",
    "number": "Which expression answers the question? Answer with its letter, or with none.",
}
ASKED |= {"predict": ASKED["number"], "complete": ASKED["number"]}
ENTAILED = (
    "Where a rule holds, does it entail its sentence? Where these numbers show that it does not "
    "hold, do they entail what pages print instead? Answer yes or no; if no, why."
)


class Sheet(NamedTuple):
    """What a reader is given for one item or claim.

    Attributes:
        id: of the item or claim.
        kind: of the item; `claim`.
        digest: of the rules that it shows.
        lines: what it says.
        order: the positions, as written, of what stands under A, B, C …
        key: the positions that are right, as the item asks for them; None for a claim, and where
            this machine leaves the question open.
    """

    id: str
    kind: str
    digest: str
    lines: tuple[str, ...]
    order: tuple[int, ...] = ()
    key: tuple[int, ...] | None = None


def of_item(item: Item, evidence: Evidence) -> Sheet:
    """The sheet of an item."""
    shown = _shown_parts(item, evidence)
    order = _shuffled(item.id, len(shown))
    if isinstance(item, Match | Order) and order == tuple(range(len(shown))):
        order = order[1:] + order[:1]
    lines = [*_question(item, evidence)]
    lines += [f"  {ascii_uppercase[n]}. {shown[place]}" for n, place in enumerate(order)]
    lines += ["", ASKED[item.kind], "", *_item_rules(item, evidence)]
    key = _right(item, key_of(item, evidence))
    return Sheet(item.id, item.kind, item_digest(item, evidence.book), tuple(lines), order, key)


def of_claim(written: Claim, evidence: Evidence) -> Sheet:
    """The sheet of a claim as it stands in its file, on a run for each of its sentences."""
    lines: list[str] = []
    judged = [evidence.book.claims[name] for name in evidence.book.laws.of_law[written.id]]
    own = {case.run for case in written.cases if case.says or case.showed}
    shared = [one for one in judged if one.run not in own]
    for claim in (*shared[:1], *(one for one in judged if one.run in own)):
        lines += [*_rule(claim, evidence), f"  sentence     {evidence.plain(claim.says)}"]
        if claim.showed:
            lines.append(f"  pages print  {evidence.plain(evidence.sentence(claim.id))}")
    if len(shared) > 1:
        others = ", ".join(str(one.run) for one in shared[1:])
        lines.append(f"  judged by the same rule, with the same sentence: {others}")
    lines += [*_runs(_runs_of(judged, evidence), evidence), "", ENTAILED]
    return Sheet(written.id, "claim", claim_digest(written), tuple(lines))


def written_out(sheet: Sheet) -> str:
    """A sheet as text."""
    return "\n".join((f"=== {sheet.id} ({sheet.kind})", *sheet.lines, ""))


def _shuffled(name: str, num: int) -> tuple[int, ...]:
    """An order that follows from the id, and is not the one of pages."""

    def place(position: int) -> bytes:
        return hashlib.sha256(f"blind {name} {position}".encode()).digest()

    return tuple(sorted(range(num), key=place))


def _right(item: Item, key: Key) -> tuple[int, ...] | None:
    if key.is_open:
        return None
    return (0,) if isinstance(item, Number | Predict | Complete) else key.right


def _shown_parts(item: Item, evidence: Evidence) -> list[str]:
    """The options, pieces, right sides, lines or expressions, in the order written."""
    if isinstance(item, Choice | Several):
        return [evidence.plain(option_text(one)) for one in item.options]
    if isinstance(item, Order):
        return [evidence.plain(one.text) for one in item.pieces]
    if isinstance(item, Match):
        return [evidence.plain(one.right) for one in item.pairs]
    if isinstance(item, FaultyLine):
        return [one.code.strip() for one in item.lines]
    return [_with_value(one, evidence.evaluate(one)) for one in _candidates(item)]


def _candidates(item: Number | Predict | Complete) -> list[str]:
    return [asked_for(item)[1], *(slip.gives for slip in item.slips)]


def _question(item: Item, evidence: Evidence) -> Iterator[str]:
    yield "question:"
    yield f"  {evidence.plain(item.stem)}"
    if item.this_table:
        yield from _table(item.this_table, evidence)
    if item.listing:
        yield from _code(item.listing, evidence)
    if isinstance(item, Match):
        yield from (f"  {n}. {evidence.plain(one.left)}" for n, one in enumerate(item.pairs, 1))
    elif isinstance(item, Order) and item.ends:
        yield f"from {item.ends[0]} to {item.ends[1]}"
    elif isinstance(item, Complete):
        yield from _table(item, evidence, item.blank)
    elif isinstance(item, FaultyLine):
        yield from _code(item.wrong, evidence)


def _table(
    table: Table | Complete, evidence: Evidence, blank: Blank | None = None
) -> Iterator[str]:
    yield f"  | {' | '.join(('', *map(evidence.plain, table.columns)))} |"
    for row, one in enumerate(table.rows, 1):
        cells = [
            "?"
            if blank and (row, column) == (blank.row, blank.column)
            else _value(evidence.evaluate(cell))
            for column, cell in enumerate(one.cells, 1)
        ]
        yield f"  | {' | '.join((evidence.plain(one.title), *cells))} |"


def _code(listing: Listing, evidence: Evidence) -> Iterator[str]:
    run = evidence.book.run(listing.run) if listing.run else None
    ended = f", executed as {listing.run}, ended {run.status}" if run else ""
    yield f"program: {evidence.plain(listing.title)}{ended}"
    text = source(evidence.book.root, listing.path, listing.object)
    yield from (f"    {line}" for line in text.splitlines())
    if run and run.printed:
        yield "  it printed:"
        yield from (f"    {line}" for line in run.printed)


def _item_rules(item: Item, evidence: Evidence) -> Iterator[str]:
    """The rules that decide an item, in an order that says nothing of its options."""
    claims = [evidence.book.claims[name] for name in sorted(claims_of(item))]
    for number, claim in enumerate(claims, 1):
        yield f"rule {number}"
        yield from _rule(claim, evidence)
    runs = _runs_of(claims, evidence)
    if isinstance(item, FaultyLine):
        yield "rule: the line at fault is the one that this corrected program no longer has there"
        yield from _code(item.right, evidence)
        runs += [one.run for one in (item.wrong, item.right) if one.run]
    elif isinstance(item, Order) and item.run:
        yield from _recorded(item.run, evidence)
        runs.append(item.run)
    else:
        for expression in sorted({one for part in parts(item) for one in part.expressions}):
            found = evidence.evaluate(expression)
            yield f"value: {_with_value(expression, found)}"
            yield from _reads(found)
            runs += found.runs
    yield from _runs(dict.fromkeys(runs), evidence)


def _recorded(path: str, evidence: Evidence) -> Iterator[str]:
    run = evidence.book.run(path)
    if run is not None:
        yield f"rule: the order in which {path} recorded"
        yield f"  stages: {', '.join(stage.name for stage in run.stages)}"
        yield f"  steps of one batch: {', '.join(step.name for step in run.prediction)}"


def _rule(claim: Claim, evidence: Evidence) -> Iterator[str]:
    predicted, observed = sides(evidence, claim)
    relation = claim.relation.replace("_", " ")
    each = ", for each element" if claim.quantifier else ""
    yield f"  {claim.kind}: observed {relation} predicted{_tolerance(claim)}{each}"
    formula = law_formula.shown(claim)
    if formula:
        yield f"  formula      {_plain(evidence, formula)}"
    for name, text, side in (
        ("observed", claim.observed, observed),
        ("predicted", claim.predicted, predicted),
    ):
        yield f"  {name:12} {_with_value(_of_run(text, claim), side)}"
        yield from _reads(side)
    if claim.domain:
        kept = claim.domain.model_dump(exclude={"because"}, exclude_none=True)
        yield f"  holds where  {', '.join(f'{k}: {v}' for k, v in kept.items())}"
    runs = {path: evidence.book.run(path) for path in evidence.outcome(claim.id).runs}
    measured = {path: run for path, run in runs.items() if run is not None}
    conditions = regime.line(claim, measured, lambda run: run.strategy)
    if conditions:
        yield f"  regime       {_plain(evidence, conditions)}"


def _of_run(text: str, claim: Claim) -> str:
    called = (("run", claim.run), ("other", claim.other))
    named = ", ".join(f"{name} = {path}" for name, path in called if path)
    return " ".join(text.split()) + (f" ({named})" if named else "")


def _plain(evidence: Evidence, text: str) -> str:
    try:
        return evidence.plain(text)
    except (ContentError, ExpressionError, AbsentError):
        return text


def _tolerance(claim: Claim) -> str:
    if claim.tolerance is None:
        return ""
    if claim.tolerance.share is not None:
        return f", within {claim.tolerance.share:.3g} × predicted"
    return f", within ± {claim.tolerance.amount:.9g}"


def _with_value(text: str, found: Evaluation) -> str:
    return f"{' '.join(text.split())}  =  {_value(found)}"


def _value(found: Evaluation) -> str:
    """What an expression gives, in full."""
    if found.absent or found.error:
        return f"not here: {found.error or found.absent}"
    result = found.result
    if isinstance(result, Value):
        return _number(result)
    if isinstance(result, Node) and isinstance(result.thing, SampledSeconds):
        return _quartiles(result.thing)
    values = quantifier.listed(result)
    return _listed([_number(one) for one in values]) if values else str(result)


def _number(value: Value) -> str:
    """A value as pages print it, and exactly where that says more."""
    exact = f"{value.number:.9g}" if isinstance(value.number, float) else f"{value.number}"
    shown = " ".join(str(value).split())
    is_alike = exact == shown or value.unit == units.TEXT or isinstance(value.number, str)
    return shown if is_alike else f"{shown} ({exact})"


def _quartiles(samples: SampledSeconds) -> str:
    return (
        f"{samples.num_samples} samples, first quartile {samples.first_quartile_seconds} s, "
        f"median {samples.median_seconds} s, third quartile {samples.third_quartile_seconds} s"
    )


def _listed(shown: Sequence[str]) -> str:
    more = f", … ({len(shown)} in all)" if len(shown) > MOST_LISTED else ""
    return f"[{', '.join(shown[:MOST_LISTED])}{more}]"


def _reads(found: Evaluation) -> Iterator[str]:
    """The fields of traces that a value is made of, where it is not one of them itself."""
    if found.absent or found.error:
        return
    leaves = _leaves(found.result)
    if leaves == [found.result]:
        return
    for leaf in leaves[:MOST_LISTED]:
        yield f"      reads    {_field(leaf)}  =  {_number(leaf)}"
    if len(leaves) > MOST_LISTED:
        yield f"      reads    … {len(leaves)} fields in all"


def _leaves(result: Any) -> list[Value]:  # noqa: ANN401
    if isinstance(result, Value):
        return list(result.leaves)
    if isinstance(result, Node):
        values = None if isinstance(result.thing, SampledSeconds) else quantifier.listed(result)
        return [leaf for value in values or () for leaf in value.leaves]
    inner = result if isinstance(result, tuple) else ()
    return list(dict.fromkeys(leaf for one in inner for leaf in _leaves(one)))


def _field(leaf: Value) -> str:
    origin = leaf.origin
    if origin is None or origin.reference:
        return leaf.formula
    named = (origin.experiment or origin.machine, origin.run, origin.field)
    return ".".join(one for one in named if one)


def _runs_of(claims: Iterable[Claim], evidence: Evidence) -> list[str]:
    return list(dict.fromkeys(run for one in claims for run in evidence.outcome(one.id).runs))


def _runs(paths: Iterable[str], evidence: Evidence) -> Iterator[str]:
    """What each run was, as its trace says."""
    for path in paths:
        run = evidence.book.run(path)
        if run is not None:
            settings = ", ".join(f"{name}={value}" for name, value in run.settings.items())
            ranks = "1 rank" if run.world_size == 1 else f"{run.world_size} ranks"
            yield (
                f"run {path}: {run.nature}, {run.strategy}, {ranks}, {run.device}, {run.backend}, "
                f"ended {run.status}; {settings}"
            )
