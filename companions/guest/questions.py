"""Questions in the pages of a site that is not ours: no topic, no run, no page of evidence.

In: the files of its questions, and the fences of its pages. Out: their HTML, or every mistake. A
key is computed from the numbers that stand in its expression, or cited from a named source; where
an expression only prints a number that somebody typed, it decides nothing without one.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path

from markupsafe import Markup

from proofbook.generator.checks import content_checks
from proofbook.generator.content.book import Book, Topic
from proofbook.generator.content.documents import NUMBERS, read
from proofbook.generator.content.errors import ContentError, ContentErrors, visible_files
from proofbook.generator.content.quiz import QuizFile
from proofbook.generator.content.reading import Loader
from proofbook.generator.content.topic import HomeFile, TopicFile
from proofbook.generator.kinds.questions import in_book
from proofbook.generator.kinds.questions.elements import question
from proofbook.generator.pages.environment import label
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import Text
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.expression import compiled
from proofbook.generator.values.filters import FILTERS, FUNCTIONS
from proofbook.generator.values.paths import Evaluation
from proofbook.generator.values.value import ExpressionError, Value, constant
from proofbook.runners.core.trace.records import Machine

_PRINTS = frozenset({"unit", "digits", "percent", "times", "exact"})
NO_RUNS = "this site has no runs, so expressions calculate with numbers"


def _of_numbers(function: Callable[..., object]) -> Callable[..., object]:
    @wraps(function)
    def over(first: object, *more: object) -> object:
        return function(constant(first) if isinstance(first, int | float) else first, *more)

    return over


class Runless(Evidence):
    """Evidence of a site without runs: only numbers in the expression itself."""

    functions = {**FUNCTIONS, **{name: _of_numbers(function) for name, function in FILTERS.items()}}
    rests_on_runs = False

    def prints_typed_number(self, expression: str) -> bool:
        """Whether an expression calculates nothing, and prints a number as it was typed."""
        if self.evaluate(expression).error:
            return False
        read = compiled(expression)
        is_sum = any(isinstance(node, ast.BinOp) for node in ast.walk(read.tree))
        return not is_sum and read.functions <= _PRINTS

    def evaluate_with(self, names: Mapping[str, object], expression: str) -> Evaluation:
        """A number as a value, whose formula is the expression as it is written."""
        evaluation = super().evaluate_with(names, expression)
        if isinstance(evaluation.result, int | float):
            evaluation.result = constant(evaluation.result)
        if isinstance(evaluation.result, Value):
            evaluation.result = replace(evaluation.result, tree=" ".join(expression.split()))
        return evaluation

    def _root(self, name: str, reading: Evaluation) -> object:
        raise ExpressionError(f"unknown name {name!r}; {NO_RUNS}")


class GuestFolio(Folio):
    """A page of a site without runs."""

    def show(self, value: Value, claim: str = "", at: str = "") -> Text:
        """A value with its formula as a tooltip; a typed number is plain text."""
        if self.evidence.prints_typed_number(value.formula) or not self.opens:
            return Text(label(str(value)))
        html = '<a class="pb-value" title="{}">{}</a> <small class="pb-nature">computed</small>'
        return Text(html).format(value.formula, str(value))


class Guest:
    """The questions of one build of a site, with the mistakes in the files of questions."""

    def __init__(self, name: str, root: Path, folder: Path) -> None:
        """Read and check questions below a folder; `name`, the site's, sets its answers apart."""
        self.name = name
        self.book, self.errors = load_quizzes(root, folder)
        self.evidence = Runless(self.book)
        self.errors = [
            _or_cite(error) for error in self.errors or content_checks.check(self.evidence)
        ]
        self._written = {
            field.text: document.source.file
            for document in self.book.documents
            for field in document.fields
            if field.path[-1] == "id"
        }

    def html(self, folio: Folio, text: str, span: tuple[int, int], above: int) -> Markup:
        """Checked HTML of a fence's questions: `text` is the page, `span` is where their YAML is.

        Messages name the page by the folio's `path`; `above` is the level of the heading before it.

        Raises:
            ContentErrors: everything wrong with it.
        """
        document = in_book.read(folio.path, text, *span)
        if self.errors and document.model.names:
            return Markup()  # what it names may be among what could not be read
        errors = list(content_checks.document_errors(self.evidence, document))
        for number, quiz_item in enumerate(document.model.items):
            here = f"{folio.path}:{span[0]}"
            if self._written.setdefault(quiz_item.id, here) != here:
                where = self._written[quiz_item.id].partition(":")[0]
                message = (
                    f"{where} has an item {quiz_item.id!r} already; name it, or choose another id"
                )
                errors.append(document.error(("items", number, "id"), message))
        if errors:
            raise ContentErrors(map(_or_cite, errors))
        level = min(above + 1, 3)
        asked = (
            question(quiz_item, folio, "question", level)
            for quiz_item in in_book.items_of(document.model, self.book)
        )
        return Markup("").join(replace(each, id=f"{self.name}/{each.id}") for each in asked)

    def folio(self, page: str) -> Folio:
        """The folio of one page of the site."""
        return GuestFolio(self.evidence, self.evidence, path=page)


def load_quizzes(root: Path, folder: Path) -> tuple[Book, list[ContentError]]:
    """(a `Book` of one topic without runs, all mistakes) from the quiz files of another site.

    Messages name files from `root`; the files of questions are in `folder` below it.
    """
    loader = Loader(root / folder.name)
    for path in visible_files(folder, "**/*.y*ml"):
        loader.keep(path, lambda *held: read(*held, QuizFile))
    loader.refuse_doubles()
    items = loader.parts(QuizFile, "items")
    topic = Topic("", TopicFile.model_construct(), {}, items, {})
    machine = Machine.model_construct(name="")
    return Book(
        root, HomeFile.model_construct(), (topic,), machine, machine, tuple(loader.documents),
    ), loader.errors  # fmt: skip


def _or_cite(error: ContentError) -> ContentError:
    """A mistake, with the other way to mend it where it is a number in a text."""
    if not error.message.startswith(NUMBERS):
        return error
    message = f"{error.message}, or say under source: of the item where it stands"
    return ContentError(error.file, error.line, error.column, message)
