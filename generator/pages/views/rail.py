"""The way that a reader follows: the first hour, the order of a topic, and a topic's tabs.

The rail of a page says its place on one way, and what comes next there; on a page of the first hour
that way is the first hour. Without a script, rail and tabs are links.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from generator.content.book import Topic
from generator.content.chain import DeepPage, chain
from generator.content.lesson import DeepFile, Mode
from generator.content.topic import HourStep
from generator.pages.view import View
from generator.pages.views.ways import marks
from generator.printing.folio import Folio

# The tabs of a topic, in groups; the template adds the summary to the last one.
GROUPS = {
    "Learn": ("learn", "deep", "worked"),
    "See": ("trace", "cost", "experiment"),
    "Practise": ("try", "challenge", "recall"),
    "Reference": ("why",),
}


def groups(row: Sequence[View]) -> list[View]:
    """The tabs of a topic by group, from its modes in a row."""
    return [
        View(called=called, ways=[way for mode in modes for way in row if way.mode == mode])
        for called, modes in GROUPS.items()
    ]


def hour(folio: Folio, minutes: Mapping[str, int] | None = None) -> list[View]:
    """The pages of the first hour.

    Args:
        folio: the page that lists them.
        minutes: that pages take, by path.
    """
    return [_step(one, folio, minutes or {}) for one in folio.book.home.first_hour]


def _step(step: HourStep, folio: Folio, minutes: Mapping[str, int]) -> View:
    """A lesson of the first hour, or a page that somebody wrote by hand."""
    if step.page in folio.book.lessons:
        topic, mode = folio.book.lessons[step.page]
        path, title = f"topics/{step.page}", topic.lessons[mode].model.title
        items = marks(topic.items_by_mode[mode], topic, folio.evidence)
    else:
        path, title, items = step.page, folio.book.handwritten_by_name[step.page].title, ""
    return View(
        page=step.page, href=f"{path}.html", title=folio.in_link.line(title), items=items,
        says=folio.line(step.says), minutes=minutes.get(f"{path}.md", 0),
    )  # fmt: skip


def rail(path: str, topic: Topic | None, row: Sequence[View], folio: Folio) -> View | None:
    """The rail of a page; none where it is on no way.

    A page of the first hour is on that way, one of Deep on its chain, others on their topic's.

    Args:
        path: of the page, under the site's root.
        topic: of the page.
        row: the modes of the topic.
        folio: the page.
    """
    steps, base, here = hour(folio), "../" * path.count("/"), path.replace(".md", ".html")
    own = next((way for way in row if way.is_here), None)
    after = next((_mode(way) for before, way in pairwise(row) if before.is_here), None)
    following = None
    is_of_topic = here not in (step.href for step in steps)
    if not is_of_topic:
        called, place = "First hour", "topics/index.html#first-hour"
    elif topic and own:
        called, place, base = folio.in_link.line(topic.file.title), "index.html", ""
        here = here.rpartition("/")[2]
        steps = [_mode(way) for way in row]
        deep = topic.lessons[own.mode].model
        if isinstance(deep, DeepFile):
            called, place, following = f"{own.word}: {called}", f"{own.mode}.html", after
            parts = (_part(one, own.mode, topic, folio) for one in chain(deep))
            steps = [_mode(own), *parts]
    else:
        return None
    at = [step.href for step in steps].index(here)
    return View(
        called=called, place=place, base=base, at=at + 1, steps=steps, here=steps[at],
        is_of_topic=is_of_topic, after=after,
        next=steps[at + 1] if at + 1 < len(steps) else following,
    )  # fmt: skip


def _mode(way: View) -> View:
    return View(href=f"{way.mode}.html", title=way.word, items=None, says=way.question)


def _part(part: DeepPage, mode: Mode, topic: Topic, folio: Folio) -> View:
    """A page of Deep's chain; a script ticks off one that asks."""
    return View(
        page=f"{topic.id}/{mode}-{part.id}", href=f"{mode}-{part.id}.html",
        title=folio.in_link.line(part.title), says="",
        items=marks(part.items, topic, folio.evidence) if part.items else None,
    )  # fmt: skip
