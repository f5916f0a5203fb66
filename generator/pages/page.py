"""What is known of a printed page, and of all pages together.

A page is composed of elements (`compose.py`), whose facts are read off before they are printed; so
whoever needs its headings, its minutes or what the search finds asks the page, not its HTML.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from proofbook.generator.content.lesson import CHAINED
from proofbook.generator.pages.elements.element import Heading
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.filters import calls_of_claims
from proofbook.generator.values.machines import OtherOutcomes


@dataclass(frozen=True)
class Page:
    """A page as it is written to disk, and what others need to know of it."""

    content: bytes
    minutes: int  # that reading it takes
    headings: Sequence[Heading] = ()  # the title first
    terms: frozenset[str] = frozenset()  # of the glossary, that its prose uses
    claims: frozenset[str] = frozenset()  # that it links
    texts: frozenset[str] = frozenset()  # that authors wrote and it prints
    scripts: Sequence[str] = ()  # that it loads, of the site's own
    searched: str = ""  # what the search finds, in sections
    assets: Mapping[str, bytes] = field(default_factory=dict)  # that only it loads, by path
    footnotes: Sequence[str] = ()  # in Markdown, of each of its values by number
    command: str = ""  # that measures a path of these again


class SitePage(NamedTuple):
    """A page as MkDocs built it."""

    path: str  # under the site's root
    html: str  # its content
    site: str  # the site's name
    footnotes: Sequence[str]
    command: str


class ListedPage(NamedTuple):
    """A page as lists of all pages name it."""

    path: str
    title: str
    about: str


@dataclass
class Gathered:
    """What pages say of claims and of lessons; pages that others list are printed first."""

    evidence: Evidence  # of the machine at hand
    others: Mapping[str, OtherOutcomes]  # of the other machines
    pages: Mapping[str, Page]  # those that are printed, by path

    @cached_property
    def minutes(self) -> dict[str, int]:
        """Reading minutes by path."""
        return {path: page.minutes for path, page in self.pages.items()}

    @cached_property
    def _lessons(self) -> dict[str, list[Page]]:
        """The pages of each lesson, by the path of its first; a page by hand is one."""
        lessons = defaultdict(list)
        for path, page in self.pages.items():
            folder, _, name = path.rpartition("/")
            mode = name.removesuffix(".md").partition("-")[0]
            lessons[f"{folder}/{mode}.md" if mode in CHAINED else path].append(page)
        return lessons

    @cached_property
    def used_in(self) -> dict[str, list[str]]:
        """By the id of each term of the glossary, the paths of the lessons that use it."""
        lessons = defaultdict(list)
        for path, pages in self._lessons.items():
            for term in frozenset[str]().union(*(page.terms for page in pages)):
                lessons[term].append(path)
        return lessons

    @cached_property
    def claim_groups(self) -> dict[str, list[str]]:
        """Claims by the experiment that they rest on, in the order of authors."""
        groups = defaultdict(list)
        for name, outcome in self.evidence.judged_claims.items():
            groups[outcome.experiment].append(name)
        return dict(sorted(groups.items()))

    @cached_property
    def claim_lessons(self) -> dict[str, list[tuple[str, str]]]:
        """By claim, pairs of topic and mode: the lessons, except Recall, that name or link it."""
        lessons: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for topic in self.evidence.book.topics:
            for mode in (name for name in topic.lessons if name != "recall"):
                pages = self._lessons.get(f"topics/{topic.id}/{mode}.md", ())
                linked = frozenset[str]().union(*(page.claims for page in pages))
                fields = topic.lessons[mode].fields
                calls = (calls_of_claims(one) for field in fields for one in field.expressions)
                named = (claim for _, claim in chain.from_iterable(calls))
                for claim in {*linked, *named}:
                    lessons[claim].append((topic.id, mode))
        return lessons

    def sections(self, lesson: str) -> dict[str, str]:
        """By a heading's text, its address in a lesson (`topic/mode`); empty if not printed."""
        pages = {
            path: page for path, page in self.pages.items()
            if path == f"topics/{lesson}.md" or path.startswith(f"topics/{lesson}-")
        }  # fmt: skip
        return {
            heading.text: path.replace(".md", f".html#{heading.anchor}")
            for path, page in pages.items() for heading in reversed(page.headings)
        }  # fmt: skip
