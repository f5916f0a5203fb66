"""A topic's own file, and the home page."""

from proofbook.generator.content.lesson import Mode, Order
from proofbook.generator.content.words import (
    ClaimId,
    Expression,
    Line,
    PagePath,
    Prose,
    RunPath,
    StatementId,
    TopicId,
    Written,
)


class TopicFile(Written):
    """content/topics/<topic>/topic.yml."""

    title: Line
    """the topic's."""
    summary: Prose
    """what it is about."""
    order: Order
    """its place among the topics."""
    requires: list[TopicId] = []
    """the topics that explain what this one uses; each has a smaller order."""
    modes: dict[Mode, Line]
    """mode → the question that its page answers."""
    key_laws: list[ClaimId] = []
    """the claims that the topic's summary on one page shows, where it has one. Its other parts are
    Learn's figure and takeaway, and the takeaways of Why, Deep and Cost."""
    symbols: Prose | None = None
    """what the letters in the summary's formulas stand for."""


class Survivor(Written):
    """A way to train a model of the picture: its run without a limit, and under the budget."""

    run: RunPath
    budgeted: RunPath
    says: Line | None = None
    """what a device holds, for readers who do not know the name of the strategy."""


class PicturedModel(Written):
    """One of the models that the home page's picture shows."""

    called: Line
    """its name on the switch."""
    question: Line
    """which of the ways train it."""
    budget: Expression
    """the memory of a device."""
    ways: list[Survivor]
    """to train it, a row each."""
    next: Line
    """where the answer is explained, a link."""


class Fact(Written):
    """What a visitor looks for or wants to know, in a word or two, and the answer."""

    lead: Line
    says: Line


class HourStep(Written):
    """A page of the first hour, and what a reader learns there."""

    page: PagePath
    says: Line


class HomeFile(Written):
    """content/site.yml."""

    title: Line
    """the page's."""
    about: Line
    """what the book is: its first sentence, also for search engines and previews."""
    picture: list[PicturedModel] = []
    """the models whose runs the page asks about: bars of each rank under a budget."""
    doors: list[Fact] = []
    """where else visitors may want to begin, each a link and what is there."""
    facts: list[Fact] = []
    """for whom the book is, why to trust it, on what it was measured."""
    licence: Prose | None = None
    """of the text and the code."""
    first_hour: list[HourStep] = []
    """the pages that lead through the book first, in their order."""
    subject: Line = "its subject"
    """what the book is about, as its page of statements says it: "… that people read about it"."""
    programs_need: Line = "Python"
    """what the short programs of that page need."""
    statements: list[StatementId] = []
    """the statements that their page shows first."""
    repeat: Prose
    """what a reader needs to measure a number again; every popover leads there."""
