"""The ways of a reader: into a topic, through its modes in tabs, and along the first hour.

Links carry the items of the page they lead to, each with its digest, so that a script can tell from
what a browser has kept how far a reader is; without it they are links. The rail of a page says its
place on one way, and what comes next there; on a page of the first hour, that way is the hour.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from generator.content.book import Topic
from generator.content.chain import DeepPage, chain
from generator.content.lesson import MODES, DeepFile, Mode
from generator.content.quiz import Item
from generator.content.topic import HourStep
from generator.items.kinds import digest_of
from generator.items.kinds.kind import Kind
from generator.pages.view import View
from generator.printing.folio import Folio
from generator.values.evaluation import Evidence


@dataclass(frozen=True)
class Way:
    """A mode of a topic, as tabs and the topic's page list it."""

    mode: Mode
    word: str
    question: Markup
    is_here: bool
    items: str  # as `item_marks`
    minutes: int | None


@dataclass(frozen=True)
class Step:
    """A page on a way; a script ticks off one with items."""

    href: str
    title: Markup | str
    says: Markup | str
    page: str = ""
    items: str | None = None  # as `item_marks`
    minutes: int = 0


@dataclass(frozen=True)
class Rail:
    """A page's place on its way, and what comes next there."""

    called: Markup | str
    place: str  # the address of the way's own page
    base: str  # what leads to the addresses of the steps
    at: int  # counted from 1
    steps: Sequence[Step]
    is_of_topic: bool  # and not of the first hour
    after: Step | None  # in the topic
    next: Step | None

    @property
    def here(self) -> Step:
        """The page itself."""
        return self.steps[self.at - 1]


def ways(
    topic: Topic, here: str | None, folio: Folio, minutes: Mapping[str, int] | None = None
) -> list[Way]:
    """A topic's modes in the suggested order; the one at hand is `here`."""
    return [
        Way(
            mode=mode,
            word=folio.ui["modes"][mode],
            question=folio.line(topic.file.modes[mode]),
            is_here=mode == here,
            items=item_marks(topic.items_by_mode[mode], topic, folio.evidence),
            minutes=(minutes or {}).get(f"topics/{topic.id}/{mode}.md"),
        )
        for mode in MODES
        if mode in topic.items_by_mode
    ]


def led_to(topic: Topic) -> dict[str, tuple[Mode, str]]:
    """By graded item that Recall leaves out, the mode and the page (without `.html`) that ask it.

    They make sense on that page only, but come back like others: Recall links those that are due.
    """
    again = topic.items_by_mode.get("recall")
    return {} if again is None else {
        name: (mode, _page(name, mode, topic))
        for mode, names in topic.items_by_mode.items() for name in names
        if name not in again and Kind.BY_MODEL[type(topic.items[name])].is_graded
    }  # fmt: skip


def _page(name: str, mode: Mode, topic: Topic) -> str:
    """The page of a mode that asks an item, without `.html`."""
    deep = topic.lessons[mode].model
    parts = chain(deep) if isinstance(deep, DeepFile) else ()
    return next((f"{mode}-{part.id}" for part in parts if name in part.items), mode)


def all_items(topic: Topic) -> list[str]:
    """The items that any page of a topic asks, each once."""
    return list(dict.fromkeys(name for names in topic.items_by_mode.values() for name in names))


def item_marks(names: Sequence[str], topic: Topic, evidence: Evidence) -> str:
    """Items as a link carries them: `id:digest`, separated by spaces.

    An item that never comes back, a prediction that the topic's Recall page leaves out, begins
    with `!`.
    """
    again = {*topic.items_by_mode.get("recall", ()), *led_to(topic)}
    return " ".join(
        ":".join((("" if name in again else "!") + name, *_digests(topic.items[name], evidence)))
        for name in names
    )


def _digests(quiz_item: Item, evidence: Evidence) -> tuple[str, ...]:
    """The digests of an item, on either machine that its section may come from."""
    by = [evidence, *([evidence.reference] if evidence.reference else [])]
    digests = (digest_of(quiz_item, known) for known in by)
    return evidence.cached("digests", quiz_item, lambda: tuple(dict.fromkeys(digests)))


# --- tabs, the first hour, and the rail

# The tabs of a topic, in groups; the template adds the summary to the last one.
GROUPS = {
    "Learn": ("learn", "deep", "worked"),
    "See": ("trace", "cost", "experiment"),
    "Practise": ("try", "challenge", "recall"),
    "Reference": ("why",),
}


def tab_groups(row: Sequence[Way]) -> list[View]:
    """The tabs of a topic by group, from its modes in a row."""
    return [
        View(called=called, ways=[way for mode in modes for way in row if way.mode == mode])
        for called, modes in GROUPS.items()
    ]


def first_hour(folio: Folio, minutes: Mapping[str, int] | None = None) -> list[Step]:
    """The pages of the first hour, with their reading minutes."""
    return [_step(step, folio, minutes or {}) for step in folio.book.home.first_hour]


def _step(step: HourStep, folio: Folio, minutes: Mapping[str, int]) -> Step:
    """A lesson of the first hour, or a page that somebody wrote by hand."""
    if step.page in folio.book.lessons:
        topic, mode = folio.book.lessons[step.page]
        path, title = f"topics/{step.page}", topic.lessons[mode].model.title
        items = item_marks(topic.items_by_mode[mode], topic, folio.evidence)
    else:
        path, title, items = step.page, folio.book.handwritten_by_name[step.page].title, ""
    title, says = folio.in_link.line(title), folio.line(step.says)
    return Step(f"{path}.html", title, says, step.page, items, minutes.get(f"{path}.md", 0))


def rail(path: str, topic: Topic | None, row: Sequence[Way], folio: Folio) -> Rail | None:
    """The rail of a page, by its path under the site's root; None where it is on no way.

    A page of the first hour is on that way, one of Deep on its chain, others on their topic's,
    whose modes are the `row`.
    """
    steps, base, here = first_hour(folio), folio.root, path.replace(".md", ".html")
    own = next((way for way in row if way.is_here), None)
    after = next((_mode(way) for before, way in pairwise(row) if before.is_here), None)
    following = None
    is_of_topic = here not in (step.href for step in steps)
    called: Markup | str = "First hour"
    place = "topics/index.html#first-hour"
    if is_of_topic:
        if not (topic and own):
            return None
        called, place, base = folio.in_link.line(topic.file.title), "index.html", ""
        here = here.rpartition("/")[2]
        steps = [_mode(way) for way in row]
        deep = topic.lessons[own.mode].model
        if isinstance(deep, DeepFile):
            called = Markup("{}: {}").format(own.word, called)
            place, following = f"{own.mode}.html", after
            parts = (_part(part, own.mode, topic, folio) for part in chain(deep))
            steps = [_mode(own), *parts]
    at = [step.href for step in steps].index(here)
    onward = steps[at + 1] if at + 1 < len(steps) else following
    return Rail(called, place, base, at + 1, steps, is_of_topic, after, onward)


def _mode(way: Way) -> Step:
    return Step(f"{way.mode}.html", way.word, way.question)


def _part(part: DeepPage, mode: Mode, topic: Topic, folio: Folio) -> Step:
    """A page of Deep's chain; a script ticks off one that asks."""
    items = item_marks(part.items, topic, folio.evidence) if part.items else None
    name = f"{mode}-{part.id}"
    return Step(f"{name}.html", folio.in_link.line(part.title), "", f"{topic.id}/{name}", items)
