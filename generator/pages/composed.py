"""Which function composes a page, by the name of its kind (`sheets.py`)."""

from collections.abc import Callable, Iterator

from markupsafe import Markup

from generator.pages import handwritten, lessons
from generator.pages.draft import Draft
from generator.pages.elements.element import Element
from generator.pages.views import costs, guide, labs, stages, watched

COMPOSED: dict[str, Callable[[Draft], Iterator[Element | Markup]]] = {
    "learn": lessons.learn,
    "worked": lessons.worked,
    "trace": stages.trace,
    "cost": costs.cost,
    "guide": guide.guide,
    "symptom": guide.symptom,
    "lab": labs.lab,
    "watched": watched.watched,
    "handwritten": handwritten.handwritten,
}
