"""Evidence: expressions over a book's traces, evaluated once each.

Flow: a `Book` in; for each expression a `Value` (or list, label …) out, or what is wrong with it.
`Folio` turns the same expressions into HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

from proofbook.generator.content import prose
from proofbook.generator.content.book import Book
from proofbook.generator.content.cases import bind_expression
from proofbook.generator.content.claim import Claim, Verdict
from proofbook.generator.content.draws import parsed
from proofbook.generator.content.errors import ContentError, nearest
from proofbook.generator.values import list_sides, units, verdicts
from proofbook.generator.values.expression import Function, compiled
from proofbook.generator.values.filters import FUNCTIONS, OF_CLAIMS, ClaimSentence, Label, described
from proofbook.generator.values.laws import closed_forms
from proofbook.generator.values.paths import Evaluation, Node
from proofbook.generator.values.value import (
    QUOTED,
    AbsentError,
    ExpressionError,
    MixedError,
    Origin,
    Value,
)
from proofbook.generator.values.verdicts import Judged
from proofbook.runners.core.declared.experiment import command_for
from proofbook.runners.core.trace import fields
from proofbook.runners.core.trace.fields import NBSP, Key
from proofbook.runners.system.book import program

NOT_MEASURED = "not measured here"
Printable = Value | Label | ClaimSentence
Made = TypeVar("Made")
UNBOUND = "; name an experiment, or bind it under `for:` or `draws:`"
ROOTS = ("machine", "cited", "given")  # of expressions, beside experiments


class Evidence:
    """Everything a page may state about a book's traces."""

    functions = FUNCTIONS  # that expressions may call, beside those of claims
    rests_on_runs = True  # what it states has to come of runs; a site without a book has none

    def __init__(self, book: Book) -> None:
        self.book = book
        self._evaluations: dict[str, Evaluation] = {}
        self._verdicts: dict[str, Judged] = {}
        self._own: dict[str, Function] = {name: partial(self._of_claim, name) for name in OF_CLAIMS}
        self._own["drawn"] = self.drawn
        self._reference: Evidence | None = None
        self._made: dict[tuple[str, int], tuple[object, Any]] = {}

    def over(self, book: Book) -> Evidence:
        """Evidence for a book with equal traces and claims; keeps what was evaluated and judged."""
        again = Evidence(book)
        again._evaluations, again._verdicts = self._evaluations, self._verdicts
        if self._reference and book.on_reference:
            again._reference = self._reference.over(book.on_reference)
        return again

    @property
    def reference(self) -> Evidence | None:
        """Evidence over the reference machine's traces; None where these are its traces."""
        if self._reference is None and self.book.on_reference:
            self._reference = Evidence(self.book.on_reference)
        return self._reference

    def for_runs(self, paths: Iterable[str]) -> Evidence:
        """This evidence, or the reference machine's where several machines measured the runs."""
        machines = {self.book.machine_of(path) for path in paths if self.book.run(path)} - {""}
        return (len(machines) > 1 and self.reference) or self

    def prints_typed_number(self, expression: str) -> bool:
        """Whether an expression only prints a typed number; in a book, none does."""
        return False

    def substitute(self, value: Value) -> Value:
        """The value to use in place of one that was read: itself, unless overridden."""
        return value

    def evaluate(self, expression: str, run: str | None = None) -> Evaluation:
        """Evaluate an expression, once, perhaps over a run; nothing is raised."""
        written = bind_expression(expression, {"run": run}) if run else expression
        if written not in self._evaluations:
            self._evaluations[written] = self.evaluate_with({}, written)
        return self._evaluations[written]

    def evaluate_with(self, names: Mapping[str, object], expression: str) -> Evaluation:
        """Evaluate an expression in which some names stand for values; nothing is raised.

        It is on the reference machine where only that has measured all of the expression's runs.
        """
        evaluation = Evaluation(substitute=self.substitute)
        try:
            checked = compiled(expression)
            if self.rests_on_runs and checked.unnamed:
                raise ExpressionError(checked.unnamed)
            roots = [name for name in checked.names if name not in names]
            places = {name: self._root(name, evaluation) for name in roots}
            functions = {**closed_forms(), **self.functions, **self._own}
            result = checked.evaluate({**places, **names}, functions)
            if isinstance(result, Value):
                str(result)  # in a unit that people read
            evaluation.result = result
        except AbsentError as reason:
            evaluation.absent = reason
            evaluation.error = reason.reason if reason.is_mistake else None
        except MixedError as mistake:
            there = self.reference and self.reference.evaluate(expression)
            if there and not there.error:
                return there
            evaluation.error = str(mistake)
        except (ExpressionError, units.UnitError) as mistake:
            evaluation.error = str(mistake)
        except RecursionError:
            evaluation.error = "it depends on its own verdict"
        return evaluation

    def _root(self, name: str, reading: Evaluation) -> object:
        """What a name of an expression stands for: an experiment, the machine, or what is cited."""
        traces = self.book.traces
        if name in traces:
            on_page = traces[name]
            return Node(on_page.trace, (), name, reading, Origin("", name), on_page)
        if name == "machine":
            machine = self.book.machine
            return Node(machine, (), "machine", reading, Origin(machine.name))
        if name in self._stated:
            return Node(self._stated[name], (), name, reading, Origin(""))
        if command := command_for(name):  # an experiment, which nobody has run
            message = f"no trace of {name!r} on any machine, or only a stale one"
            command = command.replace("python -m runners", program())
            raise ExpressionError(f"{message}; run `{command}`")
        hint = nearest(name, [*traces, *ROOTS]) or UNBOUND
        raise ExpressionError(f"unknown name {name!r}{hint}")

    @cached_property
    def _stated(self) -> dict[str, dict[str, Value]]:
        """The numbers of references.yml by id: those that are cited, and those that are given."""
        given = self.book.given.items()
        of = units.BY_NAME
        constants = {k: Value(v.value, of[v.unit], "given", f"given[{k!r}]") for k, v in given}
        cited: dict[str, Value] = {}
        for name, reference in self.book.references.items():
            if reference.value is not None:
                unit = of[reference.unit or "plain"]
                is_written = unit.is_number and unit != units.SHARE
                form = units.Form(way="written") if is_written else units.AS_RULED
                origin, formula = Origin("", reference=name), f"cited[{name!r}]"
                cited[name] = Value(reference.value, unit, "cited", formula, (), origin, form)
        return {"cited": cited, "given": constants}

    def _of_claim(self, name: str, claim: object) -> Printable:
        """What an expression asks of a claim, by its id: a function of `OF_CLAIMS`."""
        if not isinstance(claim, str):
            raise ExpressionError(f"{name}(…) takes a claim's id in quotes")
        outcome = self.judged(claim)
        if name == "holds":  # follows a sentence that leans on a claim
            words = verdict_words(outcome.verdict)
            return Label("" if outcome.verdict == "holds" else f" ({words})")
        if name == "showed":
            if outcome.claim.showed is None:
                raise ExpressionError(f"claim {claim!r} has no showed: sentences")
            return ClaimSentence(claim)
        side = outcome.predicted if name == "predicted" else outcome.observed
        if side is None:
            raise AbsentError(outcome.explanation)
        return side

    def drawn(self, name: str, quantity: int | float | str) -> Value:
        """A setting that an item drew, as in `drawn('payload', '64 MiB')`; it prints as written."""
        number, kind = parsed(quantity)
        unit = units.COUNT if isinstance(number, int) and kind == "plain" else units.BY_NAME[kind]
        is_text = isinstance(quantity, str)
        words = str(quantity).replace(" %", "%").replace(" ", NBSP) if is_text else None
        form = units.Form(way="written") if unit == units.PLAIN else units.AS_RULED
        origin = Origin("", field=name)
        return self.substitute(Value(number, unit, "given", name, (), origin, form, words=words))

    def value(self, expression: str, run: str | None = None) -> Value | None:
        """Value of an expression, or one for its list; None if missing; ContentError if wrong."""
        evaluation = self.evaluate(expression, run)
        if evaluation.error and not evaluation.absent:
            raise _failed(expression, evaluation.error)
        return list_sides.single_value(evaluation.result)

    def reading(
        self, path: str, *keys: Key, by: Callable[[Any], object] | None = None
    ) -> Value | None:
        """Value of a field, as `reading("ddp.ddp", "ranks", 0, "rank")`; None if absent.

        A path is that of a run, or a name of `ROOTS`; `by` is a function of `filters.py`.
        ContentError if there is no such field.
        """
        steps: list[Key] = [*path.split("."), *keys]
        try:
            place: Any = self._root(str(steps[0]), Evaluation(substitute=self.substitute))
            for key in steps[1:]:
                place = place.step(key)
            return list_sides.single_value(by(place) if by else place)
        except AbsentError:
            return None
        except ExpressionError as mistake:
            raise _failed(fields.path_of(steps), str(mistake)) from None

    def printable(self, expression: str) -> Printable:
        """An expression's Value, Label or ClaimSentence; a value that this machine lacks says so.

        ContentError if the expression fails, or its result cannot be printed.
        """
        evaluation = self.evaluate(expression)
        problem = self.why_unprintable(evaluation)
        if problem:
            raise _failed(expression, problem)
        if evaluation.absent:
            lacks = evaluation.absent
            why = f"{lacks.run}: {lacks.reason}" if lacks.run else lacks.reason
            return Value(NOT_MEASURED, units.TEXT, "measured", expression, absent=why)
        result: Printable = evaluation.result
        return result

    def why_unprintable(self, evaluation: Evaluation) -> str | None:
        """Message why pages cannot print an evaluation; None if they can, or it is absent."""
        if evaluation.error or evaluation.absent:
            return evaluation.error
        result = evaluation.result
        if isinstance(result, Value | Label | ClaimSentence):
            return None
        if isinstance(result, str):
            return QUOTED
        if isinstance(result, int | float):
            return f"{result!r} is a bare constant; name a value of a run instead"
        return f"{described(result)} is no single value; go on to one (of samples: | median)"

    @property
    def judged_claims(self) -> dict[str, Judged]:
        """The verdict on every claim of the book, by id."""
        return {name: self.judged(name) for name in self.book.claims}

    def judged(self, claim: str) -> Judged:
        """A claim, by its id, `Judged` once; ExpressionError for an unknown id.

        It is judged on one machine: the reference machine where only that has all its runs.
        """
        if claim not in self.book.claims:
            raise ExpressionError(self.book.claim_index.why_unknown(claim))
        if claim not in self._verdicts:
            sides = self.sides(self.book.claims[claim])
            judging = self.for_runs(run for side in sides for run in side.runs)
            self._verdicts[claim] = (
                verdicts.judge(self.book, self.book.claims[claim], *sides)
                if judging is self else judging.judged(claim)
            )  # fmt: skip
        return self._verdicts[claim]

    def sides(self, claim: Claim) -> tuple[Evaluation, Evaluation]:
        """Both sides of a claim, evaluated."""
        return self._side(claim.predicted), self._side(claim.observed)

    def _side(self, expression: str) -> Evaluation:
        """One side; a list is read element by element, so that what it measured is noted."""
        evaluation = self.evaluate(expression)
        side = evaluation.result
        if not (isinstance(side, Node) and isinstance(side.content, list)):
            return evaluation
        read = self.evaluate_with({"side": side}, "side[:]")
        return replace(evaluation, result=read.result, absent=read.absent, error=read.error)

    def plain(self, text: str) -> str:
        """An author's text with every expression printed; ContentError if one cannot be."""

        def printed(expression: str) -> str:
            printable = self.printable(expression)
            return printable.text if isinstance(printable, Label) else str(printable)

        return " ".join(prose.filled(text, printed).split())

    def cached(self, what: str, owner: object, make: Callable[[], Made]) -> Made:
        """Result of `make` for an object, cached in this evidence by `what` and the object."""
        key = (what, id(owner))
        if key not in self._made:
            self._made[key] = (owner, make())  # it is kept, so that no other has its id
        made: Made = self._made[key][1]
        return made


def verdict_words(verdict: Verdict) -> str:
    """A verdict in words: `does not hold`, `no evidence here`."""
    return verdict.replace("_", " ") + " here" * (verdict in verdicts.UNDECIDED)


def _failed(expression: str, message: str) -> ContentError:
    """What is raised while a page is printed; checks have told before where authors wrote it."""
    return ContentError("", 0, 0, f"{expression}: {message}")
