"""The way of a reader: pages in order, and the place of a page among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup


class Step(NamedTuple):
    """A page on a way."""

    href: str
    title: Markup  # of the page itself: it has one name wherever it is led to
    says: Markup = Markup()
    page: str = ""
    items: str | None = None  # as `item_marks`; with these a script ticks it off
    minutes: int = 0
    kind: str = ""  # of a topic's lesson its mode, or `lab`, or `summary`
    further: int = 0  # minutes of its pages that go further than its core
    sort: Markup = Markup()  # of page, as *Trace*


@dataclass(frozen=True)
class Rail:
    """A page's place on its way, and what comes next there."""

    called: Markup
    label: Markup  # before the page's place; none before that of a lesson in its topic
    place: str  # the address of the way's own page
    base: str  # what leads to the addresses of the steps
    here: str  # the page's own
    steps: Sequence[Step]
    after: Step | None  # the page's lesson in its topic
    is_of_topic: bool = True  # and not of the first hour

    @property
    def at(self) -> int:
        """The page's place, counted from 1."""
        return 1 + [step.href for step in self.steps].index(self.here)

    @property
    def own(self) -> Step:
        """The page itself."""
        return self.steps[self.at - 1]

    @property
    def next(self) -> Step | None:
        """What follows the page; the end of a chain leads on in the topic."""
        return [*self.steps, self.after if self.is_of_topic else None][self.at]


Groups = Mapping[str, Sequence[Step]]  # of a topic's pages, by their title
