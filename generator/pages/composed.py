"""Which function composes a page, by the name of its kind (`sheets.py`)."""

from collections.abc import Callable, Iterator

from markupsafe import Markup

from generator.pages import deep, lessons, recall
from generator.pages.draft import Draft
from generator.pages.elements.element import Element
from generator.pages.views import trials

COMPOSED: dict[str, Callable[[Draft], Iterator[Element | Markup]]] = {
    "learn": lessons.learn,
    "deep": deep.deep,
    "chain": deep.chained,
    "worked": lessons.worked,
    "why": lessons.why,
    "try": trials.trials,
    "recall": recall.recall,
    "challenge": lessons.challenge,
    "experiment": lessons.experiment,
    "summary": lessons.summary,
}
