"""Which function composes a page, by the name of its kind (`sheets.py`).

Of a lesson it composes what follows the introduction.
"""

from collections.abc import Callable, Iterator

from markupsafe import Markup

from generator.pages import deep, handwritten, lessons, recall
from generator.pages.draft import Draft
from generator.pages.elements.element import Element
from generator.pages.views import (
    costs,
    evidence,
    glossary,
    guide,
    home,
    labs,
    machines,
    plans,
    published,
    stages,
    statements,
    trials,
    watched,
)

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
    "lab": labs.lab,
    "home": home.home,
    "topics": home.topics,
    "topic": home.topic,
    "glossary": glossary.glossary,
    "guide": guide.guide,
    "symptom": guide.symptom,
    "evidence": evidence.evidence,
    "runs": machines.runs,
    "machine": machines.machine,
    "machines": machines.machines,
    "plan": plans.plan,
    "planned": plans.planned,
    "published": published.published,
    "retracted": statements.retracted,
    "watched": watched.watched,
    "handwritten": handwritten.handwritten,
}
