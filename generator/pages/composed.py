"""Which function composes a page, by the name of its kind (`sheets.py`)."""

from collections.abc import Callable, Iterator

from markupsafe import Markup

from generator.pages import lessons
from generator.pages.draft import Draft
from generator.pages.elements.element import Element
from generator.pages.views import evidence, glossary, home, machines, plans, published, statements

COMPOSED: dict[str, Callable[[Draft], Iterator[Element | Markup]]] = {
    "learn": lessons.learn,
    "worked": lessons.worked,
    "home": home.home,
    "topics": home.topics,
    "topic": home.topic,
    "glossary": glossary.glossary,
    "evidence": evidence.evidence,
    "runs": machines.runs,
    "machine": machines.machine,
    "machines": machines.machines,
    "plan": plans.plan,
    "planned": plans.planned,
    "published": published.published,
    "retracted": statements.retracted,
}
