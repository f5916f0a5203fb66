"""A topic's own file, and the home page."""

from proofbook.generator.content import words
from proofbook.generator.content.lesson import Mode, Order


class TopicFile(words.Written):
    """content/topics/<topic>/topic.yml."""

    title: words.Line
    """the topic's."""
    summary: words.Prose
    """what it is about."""
    order: Order
    """its place among the topics."""
    requires: list[words.TopicId] = []
    """the topics that explain what this one uses; each has a smaller order."""
    modes: dict[Mode, words.Line]
    """mode → the question that its page answers."""
    key_laws: list[words.ClaimId] = []
    """the claims that the topic's summary on one page shows, where it has one. Its other parts are
    Learn's figure and takeaway, and the takeaways of Why, Deep and Cost."""
    letters: dict[words.ValueName, words.Line] = {}
    """what each letter, or word, in the topic's formulas stands for: `n: number of ranks`."""


class Survivor(words.Written):
    """A way to train a model of the picture: its run without a limit, and under the budget."""

    run: words.RunPath
    budgeted: words.RunPath
    says: words.Line | None = None
    """what a device holds, for readers who do not know the name of the strategy."""


class PicturedModel(words.Written):
    """One of the models that the home page's picture shows."""

    called: words.Line
    """its name on the switch."""
    question: words.Line
    """which of the ways train it."""
    budget: words.Expression
    """the memory of a device."""
    ways: list[Survivor]
    """to train it, a row each."""
    next: words.Line
    """where the answer is explained, a link."""


class Fact(words.Written):
    """What a visitor looks for or wants to know, in a word or two, and the answer."""

    lead: words.Line
    says: words.Line


class HourStep(words.Written):
    """A page of the first hour, and what a reader learns there."""

    page: words.PagePath
    says: words.Line


class HomeFile(words.Written):
    """content/site.yml."""

    title: words.Line
    """the page's."""
    about: words.Line
    """what the book is: its first sentence, also for search engines and previews."""
    picture: list[PicturedModel] = []
    """the models whose runs the page asks about: bars of each rank under a budget."""
    doors: list[Fact] = []
    """where else visitors may want to begin, each a link and what is there."""
    facts: list[Fact] = []
    """for whom the book is, why to trust it, on what it was measured."""
    licence: words.Prose | None = None
    """of the text and the code."""
    first_hour: list[HourStep] = []
    """the pages that lead through the book first, in their order."""
    subject: words.Line = "its subject"
    """what the book is about, as its page of statements says it: "… that people read about it"."""
    programs_need: words.Line = "Python"
    """what the short programs of that page need."""
    optional_pages: list[words.Line] = []
    """pages, such as `plan`; where one is not there, a link to it or below it is its text."""
    statements: list[words.StatementId] = []
    """the statements that their page shows first."""
    repeat: words.Prose
    """what a reader needs to measure a number again; every popover leads there."""
