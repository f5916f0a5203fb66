"""Deep as a chain of short pages: after its overview one for each step, then one for each kind.

In: deep.yml. Out: its pages after the overview, in the order in which they are read: the core, and
then those that go further. The overview has an entry for all that each of them holds, so that an
address within Deep leads on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from markdown.extensions.toc import slugify  # type: ignore[import-untyped]

from proofbook.generator.content.lesson import Section
from proofbook.generator.kinds.lessons.words import BuildStep, DeepFile, Myth, Pitfall

HOOD = "Under the hood"  # whose own section comes first


@dataclass(frozen=True)
class DeepPage:
    """A page of the chain."""

    title: str
    opening: str | None  # its first sentences, where its author wrote some
    kind: Literal["step", "sections", "myths", "pitfalls"]
    anchor: str  # of its entry in the overview
    places: Sequence[tuple[str, str, int]]  # anchor, there and here, title and level of sections
    parts: Sequence[BuildStep | Section | Myth | Pitfall]  # which may ask a question
    figures: Sequence[str | None] = ()
    undivided: Sequence[str] = ()  # anchors of groups of one
    step: BuildStep | None = None  # of the build-up, where it is one
    groups: Mapping[str, Sequence[Section]] = field(default_factory=dict)  # sections by title
    is_core: bool = False  # and not one of those that go further

    @property
    def id(self) -> str:
        """The last part of its address, as in `topics/ddp/deep-myths.html`."""
        return _slug(self.title)

    @property
    def items(self) -> list[str]:
        """The questions that it asks."""
        return [part.commit for part in self.parts if part.commit]

    @property
    def others(self) -> list[str]:
        """Further anchors that lead to its entry: of questions, figures, and groups of one."""
        of_figures = [f"figure-{figure}" for figure in self.figures if figure]
        return [*(f"item-{question}" for question in self.items), *of_figures, *self.undivided]


def chain(deep: DeepFile) -> Iterator[DeepPage]:
    """Yield each `DeepPage` after the overview: steps, hood, by hand, practice, myths, pitfalls."""
    yield from sorted(_steps(deep), key=lambda page: not page.is_core)
    rest: dict[str, list[Section | None]] = {
        "When not to use it": [deep.when_not_to_use],
        "Production patterns": [*deep.production_patterns],
        "Connections": [*deep.connections],
        "Expert zone": [*deep.expert_zone],
    }
    every = (section for sections in rest.values() for section in sections)
    by_hand = [section for section in every if section and section.program]
    in_practice = {
        title: own for title, sections in rest.items()
        if (own := [section for section in sections if section and not section.program])
    }  # fmt: skip
    openings, why = deep.openings, deep.why_designed_this_way
    hood = {"Why designed this way": [why]} if why else {}
    yield _sections(HOOD, openings.under_the_hood, hood, [deep.under_the_hood.figure])
    if by_hand:
        yield _sections("By hand", openings.by_hand, {"": by_hand})
    yield _sections("In practice", openings.in_practice, in_practice)
    beliefs = [(_slug(myth.belief), f"“{myth.belief}”", 2) for myth in deep.myths]
    yield DeepPage("Myths", openings.myths, "myths", "myths", beliefs, deep.myths)
    pitfalls, opening = deep.pitfalls, openings.pitfalls
    headings = [pitfall.title for pitfall in pitfalls]
    numbered = [f"{number} {heading}" for number, heading in enumerate(headings, 1)]
    slugs = map(_slug, numbered if len(pitfalls) > 1 else headings)
    mistakes = [(slug, heading, 2) for slug, heading in zip(slugs, headings, strict=True)]
    if mistakes:
        yield DeepPage("Pitfalls", opening, "pitfalls", "common-pitfalls", mistakes, pitfalls)


def _steps(deep: DeepFile) -> Iterator[DeepPage]:
    is_marked = any(step.core for step in deep.build_up)
    for number, step in enumerate(deep.build_up, 1):
        anchor, is_core = _slug(f"{number} {step.title}"), step.core or not is_marked
        yield DeepPage(
            step.title, step.concept, "step", anchor, (), [step], [step.figure], step=step,
            is_core=is_core,
        )  # fmt: skip


def _sections(
    title: str,
    opening: str | None,
    groups: Mapping[str, Sequence[Section]],
    figures: Sequence[str | None] = (),
) -> DeepPage:
    sections = [section for group in groups.values() for section in group]
    is_divided = len(groups) > 1 or title == HOOD
    places = [
        (_slug(heading), heading, level)
        for group, within in groups.items()
        for heading, level in [(group, 2), *((section.title, 2 + is_divided) for section in within)]
        if is_divided or heading != group
    ]
    undivided = [] if is_divided else [_slug(group) for group in groups if group]
    drawn = [*figures, *(section.figure for section in sections)]
    anchor = _slug(title)
    return DeepPage(
        title, opening, "sections", anchor, places, sections, drawn, undivided, groups=groups
    )


def _slug(title: str) -> str:
    return str(slugify(title, "-"))
