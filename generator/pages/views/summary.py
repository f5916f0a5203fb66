"""A topic on one page, for paper: what its lessons come to, in the words of their own files.

In: a topic with its lessons. Out: the takeaways of those that have one, in the order in which
readers meet them, and the figure of Learn. The laws beside them are `key_laws` of topic.yml.
"""

from __future__ import annotations

from collections.abc import Iterator

from generator.content.book import Topic
from generator.content.exhibit import Figure
from generator.content.lesson import CostFile, DeepFile, LearnFile, Mode, WhyFile

SUMMED_UP: tuple[Mode, ...] = ("learn", "why", "deep", "cost")


def takeaways(topic: Topic) -> Iterator[tuple[Mode, list[str]]]:
    """What to remember of each lesson, as its author wrote it."""
    for mode in SUMMED_UP:
        lesson = topic.lessons[mode].model if mode in topic.lessons else None
        if isinstance(lesson, DeepFile):
            yield mode, lesson.takeaways
        elif isinstance(lesson, LearnFile | WhyFile | CostFile):
            yield mode, [lesson.takeaway]


def figure(topic: Topic) -> Figure | None:
    """The figure that Learn explains the idea with."""
    lesson = topic.lessons["learn"].model if "learn" in topic.lessons else None
    if not isinstance(lesson, LearnFile):
        return None
    return next(one for one in lesson.figures if one.id == lesson.figure)
