"""A topic's own file, the home page, and which model belongs to which mode."""

from __future__ import annotations

from typing import Literal

from generator.content.cost import CostFile
from generator.content.exhibit import Figure
from generator.content.lesson import (
    ChallengeFile,
    DeepFile,
    ExperimentFile,
    LearnFile,
    LessonFile,
    RecallFile,
    TraceFile,
    TryFile,
    WhyFile,
    WorkedFile,
)
from generator.content.words import ClaimId, Id, Line, Prose, Written

Mode = Literal[
    "learn", "why", "deep", "trace", "try", "challenge", "experiment", "recall", "cost", "worked"
]


class TopicFile(Written):
    """content/topics/<topic>/topic.yml.

    Attributes:
        title: the topic's.
        summary: what it is about.
        order: its place among the topics.
        modes: mode → the question that its page answers.
        key_laws: the claims that the topic's summary on one page shows, where it has one. Its
            other parts are Learn's figure and takeaway, and the takeaways of Why, Deep and Cost.
        symbols: what the letters in the summary's formulas stand for.
    """

    title: Line
    summary: Prose
    order: int
    modes: dict[Mode, Line]
    key_laws: list[ClaimId] = []
    symbols: Prose | None = None


class HomeFile(Written):
    """content/site.yml.

    Attributes:
        title: the page's.
        about: what the book is: its first sentence, also for search engines and previews.
        topic: the topic whose item the page asks first.
        commit: that item; the figure stays closed until the reader has answered.
        figure: the runs behind the answer.
        seen: what the figure shows.
        numbers: what the numbers of this book are.
        how: how the book works.
        statements: the retractions that their page shows first; ten, as the home page's link says.
        repeat: what a reader needs to measure a number again; every popover leads here.
    """

    title: Line
    about: Line
    topic: Id
    commit: Id
    figure: Figure
    seen: Prose
    numbers: Prose
    how: Prose
    statements: list[Id] = []
    repeat: Prose


# In the order in which they are suggested.
MODES: dict[Mode, type[LessonFile]] = {
    "learn": LearnFile,
    "why": WhyFile,
    "deep": DeepFile,
    "trace": TraceFile,
    "try": TryFile,
    "challenge": ChallengeFile,
    "experiment": ExperimentFile,
    "recall": RecallFile,
    "cost": CostFile,
    "worked": WorkedFile,
}
