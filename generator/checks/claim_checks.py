"""Claims and statements checked against the runs: what can be judged, and what it may rest on.

In: a file of claims, or of the statements that people read, and the evidence. Out: what is wrong,
where it is written. A law rests on no measured time, and a large tolerance has a reason. A claim
on runs of ranks knows its dtype, and what is fixed where ranks differ. What is wrong on several
runs of a claim is told once. The claim of a statement bears out its verdict on the reference
machine; pages of another one mention that its runs differ.
"""

import re
from collections.abc import Iterator, Mapping

from proofbook.generator.content import prose
from proofbook.generator.content.book import Book
from proofbook.generator.content.claim import Claim, ClaimFile
from proofbook.generator.content.documents import Document, fields_of
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.values.evaluation import Evidence, verdict_words
from proofbook.generator.values.filters import ClaimSentence
from proofbook.generator.values.perturbed import counterexample, why_not_stated
from proofbook.generator.values.regime import dtype_of
from proofbook.generator.values.value import Value
from proofbook.generator.values.verdicts import Judged

LARGE = 0.1  # a tolerance beyond which a law says why
# What another processor may round otherwise, and what another allocator may hold.
BY_MACHINE = re.compile(
    r"\.parameter_digest|gradient_digest|num_distinct$|largest_difference|memory\.(peak_bytes|at_peak)"
)


def mistakes(evidence: Evidence, document: Document[ClaimFile]) -> Iterator[Mistake]:
    """Yield (path, message) where claims cannot be judged, or rest on what they may not."""
    book = evidence.book
    for position, written in enumerate(document.model.claims):
        judged = [book.claims[name] for name in book.claim_index.of_claim[written.id]]
        outcomes = [evidence.judged(claim.id) for claim in judged]
        problems: list[Mistake]
        problems = [((outcome.at,), outcome.error) for outcome in outcomes if outcome.error]
        if not problems:
            problems = [*_problems(evidence, written, judged), *_regime(evidence, judged)]
        problems += [problem for claim in judged for problem in _texts(evidence, claim)]
        for path, message in dict(reversed(problems)).items():  # the first at each place
            yield ("claims", position, *path), message


def _texts(evidence: Evidence, claim: Claim) -> Iterator[Mistake]:
    """Expressions that a text of the claim cannot print on one of its runs."""
    for field in fields_of(claim):
        for _, expression in prose.expressions(field.text) if field.path[0] != "for" else ():
            problem = why_not_stated(evidence, expression)
            if isinstance(evidence.evaluate(expression).result, ClaimSentence):
                problem = "a claim's own sentences cannot quote a claim's sentence"
            if problem:
                yield field.path, f"{expression}: {problem}"


def _problems(evidence: Evidence, written: Claim, judged: list[Claim]) -> Iterator[Mistake]:
    wide = written.tolerance
    if written.kind == "law" and wide and (wide.share or 0) > LARGE and wide.because is None:
        yield ("tolerance",), "a law that may be off by more than a tenth says why: because: …"
    for position, claim in enumerate(judged):
        yield from _timed(evidence, claim)
        yield from _unplaced(evidence, claim)
        outcome = evidence.judged(claim.id)
        for name in (getattr(case, key) for case in claim.cases for key in ("run", "other")):
            if name and name not in outcome.runs:
                yield ("for", position), f"neither predicted: nor observed: reads {name}"
        is_word = isinstance(outcome.observed, Value) and isinstance(outcome.observed.number, str)
        can_turn = claim.relation == "differs" and is_word  # into any word
        is_tried = outcome.verdict == "holds" and not can_turn
        if is_tried and counterexample(evidence, claim.id) is None:
            yield (), f"nothing that its runs measure could refute {claim.id}"


def _timed(evidence: Evidence, claim: Claim) -> Iterator[Mistake]:
    """A law whose side reads a measured time."""
    sides = evidence.sides(claim) if claim.kind == "law" else ()
    for at, side in zip(("predicted", "observed"), sides, strict=False):
        for field in side.measured:
            experiment, name, path = field.split(".", 2)
            run = evidence.book.run(f"{experiment}.{name}")
            if path.startswith("timing.") and run is not None and run.nature != "simulated":
                yield (at,), f"a law reads the measured time {field}; make it an observation"


def _unplaced(evidence: Evidence, claim: Claim) -> Iterator[Mistake]:
    """A law without a domain that another machine may break though it holds on this one."""
    is_open = (claim.kind, claim.relation, claim.domain) == ("law", "equals", None)
    runs = filter(None, map(evidence.book.run, evidence.judged(claim.id).runs))
    is_measured = any(run.nature != "simulated" for run in runs)
    if is_open and is_measured and BY_MACHINE.search(claim.observed):
        message = "another device may round or allocate otherwise; say where the law holds: "
        yield (), f"{message}domain: {{device: [cpu], because: …}}, or domain: everywhere"


def _regime(evidence: Evidence, judged: list[Claim]) -> Iterator[Mistake]:
    """Conditions of the measured runs that neither a run nor the claim states."""
    for claim in judged:
        runs = {name: evidence.book.run(name) for name in evidence.judged(claim.id).runs}
        measured = {name: run for name, run in runs.items() if run and run.nature != "simulated"}
        for name, run in measured.items():
            is_open = run.status != "skipped" and not run.is_plain and claim.regime.dtype is None
            if is_open and dtype_of(run) is None:
                yield (), f"{name} has recorded no dtype; state it: regime: {{dtype: float32}}"
        if len({run.world_size for run in measured.values()}) > 1 and claim.regime.fixed is None:
            message = "compares different numbers of ranks; say what is fixed: "
            yield (), f"{message}regime: {{fixed: the global batch}}"


def broken_laws(book: Book, outcomes: Mapping[str, Judged]) -> list[ContentError]:
    """A list: an error for each law that does not hold, where it is written, with its values."""
    return [
        book.claim_index.error(
            name,
            f"law {name}: {verdict_words(law.verdict)} ({law.explanation}){values_text(book, law)}",
        )
        for name, law in outcomes.items()
        if law.is_broken_law and not law.error  # which is told where it is written
    ]


def values_text(book: Book, outcome: Judged) -> str:
    """Text of the two values a law compares, and of settings unlike the reference machine's."""
    text, predicted, observed = "", outcome.predicted, outcome.observed
    if predicted and observed:
        is_alike = str(predicted) == str(observed)  # rounded, as pages print them
        left, right = (str(v.number if is_alike else v) for v in (predicted, observed))
        text = f": predicted {left} = {predicted.formula}, observed {right} = {observed.formula}"
    for name in outcome.runs:
        run, trace = book.run(name), book.holder(name)
        original = trace and trace.reference and trace.reference.runs.get(name.partition(".")[2])
        for key, setting in original.settings.items() if original else ():
            if run and (here := run.settings.get(key)) != setting:
                text += f"; {name} has {key} {here}, the reference machine {setting}"
    return text


def program_path(book: Book, run: str) -> str:
    """The file that a run executed, from the project's root; empty where it executed none."""
    executed = book.run(run)
    return str(executed.settings.get("program", "")) if executed else ""
