"""The ways of a reader: through the lessons and labs of a topic, and along the first hour.

Links carry the items of the page they lead to, each with its digest, so that a script can tell from
what a browser has kept how far a reader is; without it they are links. The line above a page
says its place on one way, and what comes next there; on a page of the first hour, that way is the
hour.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain as chained
from itertools import zip_longest

from markupsafe import Markup, escape

from proofbook.generator.content.book import Topic
from proofbook.generator.content.lesson import Mode
from proofbook.generator.content.quiz import Item
from proofbook.generator.content.topic import HourStep
from proofbook.generator.kinds.lessons.chain import DeepPage, chain
from proofbook.generator.kinds.lessons.words import DeepFile
from proofbook.generator.kinds.questions.kinds import digest_of
from proofbook.generator.kinds.questions.kinds.base import QuestionKind
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.way import Groups, Rail, Step
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.evaluation import Evidence
from proofbook.runners.system.kinds import filling, page_kind

FIRST_PASS = "First pass"
# What a topic has, in groups: its lessons in the suggested order, with places for what companions
# add, and its summary.
GROUPS = {
    FIRST_PASS: ("learn", "trace", "experiment", "cost", "worked", "try", "why"),
    "Second pass": ("deep", "challenge", "lab"),
    "Later": ("recall", "summary"),
}
DIGITS = 4  # of a digest in a link, where one change of a question in 65,536 goes unseen
SUMMARY = "One sheet to print, which gives the results of the lessons away"


def way(sheet: Sheet, folio: Folio) -> tuple[Groups, Rail | None]:
    """What the page's topic has, and the page's place on its way."""
    groups = ways(sheet.topic, folio) if sheet.topic else {}
    return groups, rail(sheet, groups, folio)


def ways(topic: Topic, folio: Folio, minutes: Mapping[str, int] | None = None) -> Groups:
    """The groups of what a topic has."""
    groups = {
        called: [step for kind in kinds for step in _of_kind(kind, topic, folio, minutes or {})]
        for called, kinds in GROUPS.items()
    }
    return {called: steps for called, steps in groups.items() if steps}


def in_order(groups: Groups) -> list[Step]:
    """The lessons and labs of a topic."""
    return [step for step in chained(*groups.values()) if step.kind != "summary"]


def _of_kind(kind: str, topic: Topic, folio: Folio, minutes: Mapping[str, int]) -> Iterator[Step]:
    file = topic.file
    for steps in filling(f"steps.{kind}"):
        yield from steps(topic, folio, minutes)
    if kind == "summary" and file.key_laws:
        yield Step("summary.html", escape(SUMMARY), kind=kind, sort=escape("Summary"))
    for mode in topic.items_by_mode:
        if mode == kind and page_kind(mode):
            items = item_marks(topic.items_by_mode[mode], topic, folio.evidence)
            title = folio.in_link.line(topic.lessons[mode].model.title)
            own, further = _minutes(mode, topic, minutes)
            yield Step(
                f"{mode}.html", title, Markup(), f"{topic.id}/{mode}", items, own, kind, further,
                escape(folio.ui["modes"][mode]),
            )  # fmt: skip


def _minutes(mode: Mode, topic: Topic, minutes: Mapping[str, int]) -> tuple[int, int]:
    """Those of a lesson, and of its pages that go further."""
    deep, first = topic.lessons[mode].model, f"topics/{topic.id}/{mode}"
    parts = [*chain(deep)] if isinstance(deep, DeepFile) else []
    own, further = (
        sum(minutes.get(f"{first}-{part.id}.md", 0) for part in parts if part.is_core is is_core)
        for is_core in (True, False)
    )
    return minutes.get(f"{first}.md", 0) + own, further


def led_to(topic: Topic) -> dict[str, tuple[Mode, str]]:
    """By graded item that Recall leaves out, the mode and the page (without `.html`) that ask it.

    They make sense on that page only, but come back like others: Recall links those that are due.
    """
    again = topic.items_by_mode.get("recall")
    return {} if again is None else {
        name: (mode, _page(name, mode, topic))
        for mode, names in topic.items_by_mode.items() for name in names
        if name not in again and QuestionKind.BY_MODEL[type(topic.items[name])].is_graded
    }  # fmt: skip


def _page(name: str, mode: Mode, topic: Topic) -> str:
    deep = topic.lessons[mode].model
    parts = chain(deep) if isinstance(deep, DeepFile) else ()
    return next((f"{mode}-{part.id}" for part in parts if name in part.items), mode)


def all_items(topic: Topic) -> list[str]:
    """The items that any page of a topic asks, each once."""
    return list(dict.fromkeys(name for names in topic.items_by_mode.values() for name in names))


def item_marks(names: Sequence[str], topic: Topic, evidence: Evidence) -> str:
    """Items as a link carries them: `id:digest`, the digest cut short, separated by spaces.

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
    known = filter(None, (evidence, evidence.reference))
    digests = (digest_of(quiz_item, machine)[:DIGITS] for machine in known)
    return evidence.cached("digests", quiz_item, lambda: tuple(dict.fromkeys(digests)))


# --- the first hour, and the place of a page


def first_hour(folio: Folio, minutes: Mapping[str, int] | None = None) -> list[Step]:
    """The pages of the first hour, with their reading minutes."""
    return [_step(step, folio, minutes or {}) for step in folio.book.home.first_hour]


def _step(step: HourStep, folio: Folio, minutes: Mapping[str, int]) -> Step:
    if step.page in folio.book.lessons:
        topic, mode = folio.book.lessons[step.page]
        path, title = f"topics/{step.page}", topic.lessons[mode].model.title
        items = item_marks(topic.items_by_mode[mode], topic, folio.evidence)
        own, _ = _minutes(mode, topic, minutes)
    else:
        path, title, items = step.page, folio.book.handwritten_by_name[step.page].title, ""
        own = minutes.get(f"{path}.md", 0)
    title, says = folio.in_link.line(title), folio.line(step.says)
    return Step(f"{path}.html", title, says, step.page, items, own)


def rail(sheet: Sheet, groups: Groups, folio: Folio) -> Rail | None:
    """The place of a page, whose topic has these groups; None where it is on no way.

    A page of the first hour is on that way, one of Deep on the chain of its core or of the pages
    that go further, others on their topic's.
    """
    hour, here, topic = first_hour(folio), sheet.path.replace(".md", ".html"), sheet.topic
    steps, name = in_order(groups), here.rpartition("/")[2]
    pairs = zip_longest(steps, steps[1:])
    own, after = next(
        (pair for pair in pairs if pair[0].href == name or pair[0].kind == sheet.mode),
        (None, None),
    )
    if here in (step.href for step in hour):
        called, place = escape("First hour"), "topics/index.html#first-hour"
        return Rail(called, called, place, folio.root, here, hour, after, is_of_topic=False)
    if not topic or not own:
        return None
    called, label = folio.in_link.line(topic.file.title), Markup()
    if sheet.mode and isinstance(deep := topic.lessons[sheet.mode].model, DeepFile):
        parts = list(chain(deep))
        is_core = all(part.is_core for part in parts if part.id == sheet.of)
        label = own.sort if is_core else Markup("{}, further").format(own.sort)
        called = Markup("{}: {}").format(label, called)
        parts = [part for part in parts if part.is_core is is_core]
        steps = [own, *(_part(part, sheet.mode, topic, folio) for part in parts)]
    return Rail(called, label, own.href, "", name, steps, after)


def _part(part: DeepPage, mode: Mode, topic: Topic, folio: Folio) -> Step:
    items = item_marks(part.items, topic, folio.evidence) if part.items else None
    page, title = f"{mode}-{part.id}", folio.in_link.line(part.title)
    return Step(f"{page}.html", title, page=f"{topic.id}/{page}", items=items)
