"""A topic's own file, and the home page."""

from generator.content.lesson import Mode
from generator.content.words import (
    ClaimId,
    Expression,
    LessonPath,
    Line,
    Prose,
    RunPath,
    StatementId,
    TopicId,
    Written,
)


class TopicFile(Written):
    """content/topics/<topic>/topic.yml.

    Attributes:
        title: the topic's.
        summary: what it is about.
        order: its place among the topics.
        requires: the topics that explain what this one uses; each has a smaller order.
        modes: mode → the question that its page answers.
        key_laws: the claims that the topic's summary on one page shows, where it has one. Its
            other parts are Learn's figure and takeaway, and the takeaways of Why, Deep and Cost.
        symbols: what the letters in the summary's formulas stand for.
    """

    title: Line
    summary: Prose
    order: int
    requires: list[TopicId] = []
    modes: dict[Mode, Line]
    key_laws: list[ClaimId] = []
    symbols: Prose | None = None


class Survivor(Written):
    """A way to train a model of the picture: its run without a limit, and under the budget."""

    run: RunPath
    budgeted: RunPath


class PicturedModel(Written):
    """One of the models that the home page's picture shows.

    Attributes:
        called: its name on the switch.
        question: which of the ways train it.
        budget: the memory of a device.
        ways: to train it, a row each.
        next: where the answer is explained, a link.
    """

    called: Line
    question: Line
    budget: Expression
    ways: list[Survivor]
    next: Line


class Fact(Written):
    """What a visitor wants to know of the book, in a word or two, and the answer."""

    lead: Line
    says: Line


class HourStep(Written):
    """A lesson of the first hour, as `topic/mode`, and what a reader learns there."""

    page: LessonPath
    says: Line


class HomeFile(Written):
    """content/site.yml.

    Attributes:
        title: the page's.
        about: what the book is: its first sentence, also for search engines and previews.
        picture: the models whose runs the page asks about: bars of each rank under a budget.
        facts: for whom the book is, why to trust it, on what it was measured.
        licence: of the text and the code.
        first_hour: the lessons that lead through the book first, in their order.
        statements: the retractions that their page shows first.
        repeat: what a reader needs to measure a number again; every popover leads there.
    """

    title: Line
    about: Line
    picture: list[PicturedModel]
    facts: list[Fact] = []
    licence: Prose | None = None
    first_hour: list[HourStep] = []
    statements: list[StatementId] = []
    repeat: Prose
