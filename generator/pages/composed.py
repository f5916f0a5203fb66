"""Which function composes a page, by the name of its kind (`sheets.py`)."""

from collections.abc import Callable, Iterator

from markupsafe import Markup

from generator.pages import deep, handwritten, lessons, recall
from generator.pages.draft import Draft
from generator.pages.elements.element import Element
from generator.pages.views import costs, guide, labs, stages, trials, watched

COMPOSED: dict[str, Callable[[Draft], Iterator[Element | Markup]]] = {
    "learn": lessons.learn,
    "deep": deep.deep,
    "chain": deep.chained,
    "worked": lessons.worked,
    "trace": stages.trace,
    "cost": costs.cost,
    "why": lessons.why,
    "try": trials.trials,
    "recall": recall.recall,
    "challenge": lessons.challenge,
    "experiment": lessons.experiment,
    "summary": lessons.summary,
    "guide": guide.guide,
    "symptom": guide.symptom,
    "lab": labs.lab,
    "watched": watched.watched,
    "handwritten": handwritten.handwritten,
}
