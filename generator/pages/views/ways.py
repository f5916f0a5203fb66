"""The ways into a topic: its modes as links, with the questions that each asks.

Links carry the items of the page they lead to, each with its digest, so that a script can tell from
what a browser has kept how far a reader is; without it they are links.
"""

from collections.abc import Mapping, Sequence

from generator.content.book import Topic
from generator.content.chain import chain
from generator.content.lesson import MODES, DeepFile, Mode
from generator.content.quiz import Item
from generator.items.kinds import digest_of
from generator.items.kinds.kind import Kind
from generator.pages.view import View
from generator.printing.folio import Folio
from generator.values.evaluation import Evidence


def ways(
    topic: Topic, here: str | None, folio: Folio, minutes: Mapping[str, int] | None = None
) -> list[View]:
    """The modes that this topic has, in the order in which they are suggested.

    Args:
        topic: the topic.
        here: the mode of the page.
        folio: the page.
        minutes: that pages take, by path.
    """
    return [
        View(
            mode=mode,
            word=folio.ui["modes"][mode],
            question=folio.line(topic.file.modes[mode]),
            is_here=mode == here,
            items=marks(topic.items_by_mode[mode], topic, folio.evidence),
            minutes=(minutes or {}).get(f"topics/{topic.id}/{mode}.md"),
        )
        for mode in MODES
        if mode in topic.items_by_mode
    ]


def led_to(topic: Topic) -> dict[str, tuple[Mode, str]]:
    """The graded items that Recall leaves out, with the mode and the page that ask each of them.

    They make sense on that page only, but come back like others: Recall links those that are due.
    """
    again = topic.items_by_mode.get("recall")
    return {} if again is None else {
        name: (mode, _page(name, mode, topic))
        for mode, names in topic.items_by_mode.items() for name in names
        if name not in again and Kind.BY_MODEL[type(topic.items[name])].is_graded
    }  # fmt: skip


def _page(item: str, mode: Mode, topic: Topic) -> str:
    """The page of a mode that asks an item, without `.html`."""
    deep = topic.lessons[mode].model
    parts = chain(deep) if isinstance(deep, DeepFile) else ()
    return next((f"{mode}-{one.id}" for one in parts if item in one.items), mode)


def all_items(topic: Topic) -> list[str]:
    """The items that any page of a topic asks, each once."""
    return list(dict.fromkeys(name for names in topic.items_by_mode.values() for name in names))


def marks(names: Sequence[str], topic: Topic, evidence: Evidence) -> str:
    """Items as a link carries them, separated by spaces: `id:digest`.

    An item that never comes back, a prediction that the topic's Recall page leaves out, begins
    with `!`.
    """
    again = {*topic.items_by_mode.get("recall", ()), *led_to(topic)}
    return " ".join(
        ":".join((("" if name in again else "!") + name, *_digests(topic.items[name], evidence)))
        for name in names
    )


def _digests(item: Item, evidence: Evidence) -> tuple[str, ...]:
    """The digests of an item, on either machine that its section may come from."""
    by = [evidence, *([evidence.reference] if evidence.reference else [])]
    digests = (digest_of(item, one) for one in by)
    return evidence.cached("digests", item, lambda: tuple(dict.fromkeys(digests)))
