"""Book → its pages, each printed again only when something that it is made from has changed.

Flow: what any page may draw upon (traces, claims, templates …) is the *base*; beyond it each page
is made from a `Sheet`. A press remembers both, and the pages. The next book is compared with them,
value by value: another base forgets everything, another sheet prints one page. A press that has
printed nothing yet prints everything, so a plain build goes the same way and gives the same bytes.

Checks go the same way: the mistakes of a file are looked for again only when the file, its topic's
items or the code that it lists have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from generator.checks import content_checks, guide_checks, repeats
from generator.content import listed_code
from generator.content.book import Book, Topic
from generator.content.claim import RetractionFile
from generator.content.documents import Document
from generator.content.errors import ContentError, ContentErrors
from generator.content.glossary import GlossaryFile
from generator.content.guide import GuideFile
from generator.content.lesson import HomeFile
from generator.content.plan_page import PlanFile
from generator.content.quiz import QuizFile
from generator.evidence import verdicts
from generator.evidence.claim_topics import Lesson, lessons_by_claim, topics_by_claim
from generator.evidence.evaluation import Evidence
from generator.evidence.folio import interface_words
from generator.evidence.other_machines import other_outcomes
from generator.evidence.value import Value
from generator.evidence.verdicts import Outcome
from generator.evidence.which_machine import shows_reference
from generator.pages import hands, headings
from generator.pages.page import TEMPLATES, Judged, Printed, Sheet, environment
from generator.pages.views import summary
from generator.pages.views.glossary import Use
from runners.traces import published_plans

_SHARED = (
    "root", "traces", "machine", "reference", "machines", "claims", "laws",
    "misconceptions", "references",
)  # fmt: skip
_NO_HOME = HomeFile.model_construct()  # what a page holds that has nothing of the home page
TAKEN = "the book has a page of this name already; choose another"
EVIDENCE = "evidence.md"
HOME = "content/home.yml"
OF_EVIDENCE = ("evidence", "machines/")  # how the paths of pages begin that list what runs left
PLAN = "plan.md"
Code = tuple[tuple[str, str | None], ...]
Look = tuple[object, hands.Task]


@dataclass(frozen=True)
class Base:
    """What any page may draw upon.

    Attributes:
        shared: the fields of a book that every sheet has whole.
        templates: every template by its path, as text.
        words: the interface's.
    """

    shared: Mapping[str, object]
    templates: Mapping[str, str]
    words: Mapping[str, object]


def _base(book: Book) -> Base:
    templates = {
        path.relative_to(TEMPLATES).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(TEMPLATES.rglob("*.j2"))
    }
    return Base({name: getattr(book, name) for name in _SHARED}, templates, interface_words())


class Press:
    """Prints one book after another."""

    def __init__(self, num_processes: int = 1) -> None:
        """Begin.

        Args:
            num_processes: that print at the same time; with several, what they evaluate is lost.
        """
        self._num_processes = num_processes
        self._base: Base | None = None
        self._judged: Judged | None = None
        self._found: dict[str, tuple[object, list[ContentError]]] = {}
        self._pages: dict[str, tuple[Sheet, Printed]] = {}

    def printed(self, book: Book) -> dict[str, bytes]:
        """Every page of a book, by its path under the site's root.

        Raises:
            ContentErrors: whatever authors wrote that cannot be printed, all at once.
        """
        judged = self.judged(book)
        book = judged.evidence.book
        pages = self._print_all(_Files(book), judged)
        _raise_any([*_unused_terms(book, pages), *_missing_sections(book, _anchors(book, pages))])
        return {path: page.content for path, page in pages.items()}

    @property
    def assets(self) -> dict[str, bytes]:
        """The files that single pages load, by path: the states of figures that readers operate."""
        pages = (page for _, page in self._pages.values())
        return {path: content for page in pages for path, content in page.assets.items()}

    @property
    def handwritten(self) -> frozenset[str]:
        """The pages that somebody wrote as Markdown."""
        return frozenset(path for path, (sheet, _) in self._pages.items() if sheet.text)

    @property
    def sources(self) -> dict[str, str | None]:
        """The file that an author edits, by page; None for a page that no author wrote."""
        return {path: sheet.source for path, (sheet, _) in self._pages.items()}

    @property
    def pages(self) -> dict[str, tuple[Sheet, Printed]]:
        """What each page was made from, and the page."""
        return dict(self._pages)

    def judged(self, book: Book) -> Judged:
        """The evidence over a book, with every verdict; what is known of its base stays."""
        base = _base(book)
        if self._judged is None or base != self._base:
            environment().globals["ui"] = base.words
            evidence = Evidence(book)
            outcomes = verdicts.judge(book, evidence)
            self._judged = Judged(evidence, outcomes, other_outcomes(book, outcomes))
            self._base, self._found, self._pages = base, {}, {}
        else:  # stand the book on the base that is known, so that comparing it takes no time
            shared: dict[str, Any] = {name: self._base.shared[name] for name in _SHARED}
            evidence = self._judged.evidence.over(replace(book, **shared))
            self._judged = replace(self._judged, evidence=evidence)
        return self._judged

    def _print_all(self, files: _Files, judged: Judged) -> dict[str, Printed]:
        pages: dict[str, Printed] = {}
        minutes: dict[str, int] = {}
        used_in: dict[str, tuple[Use, ...]] = {}
        terms = {term.id: term for term in files.book.terms}
        anchors: dict[str, dict[str, str]] = {}
        values: dict[str, dict[object, Value]] = {}
        errors: list[ContentError] = []
        looks = dict(_looks(files, judged.evidence))
        machines = _Machines(files, judged.evidence)
        for sheets in (
            _sheets(files, judged), _indexes(files, minutes, used_in, anchors),
            _of_experiments(files, judged, values),
        ):  # fmt: skip
            wanted: dict[str, Sheet] = {}
            for sheet in (machines.decided(one) for one in sheets):
                if sheet.path in pages or sheet.path in wanted:
                    errors.append(ContentError(sheet.source or sheet.path, 0, 0, TAKEN))
                else:
                    wanted[sheet.path] = sheet
            errors += self._print(wanted, judged, looks)
            pages |= {path: self._pages[path][1] for path in wanted if path in self._pages}
            minutes |= {path: page.minutes for path, page in pages.items()}
            anchors |= _anchors(files.book, pages)
            for path in wanted:
                for term in pages[path].terms if path in pages else ():
                    use = Use.of(path, pages[path].content, pages[path].values, terms[term])
                    used_in[term] = (*used_in.get(term, ()), use)
            _gather(values, (pages[path] for path in wanted if path in pages and _teaches(path)))
        _raise_any(errors)
        self._pages = {path: kept for path, kept in self._pages.items() if path in pages}
        return pages

    def _print(
        self, sheets: Mapping[str, Sheet], judged: Judged, looks: Mapping[str, Look]
    ) -> Iterator[ContentError]:
        """Look for mistakes and print, each only where something has changed.

        Gives the mistakes for which a page cannot be printed.

        Raises:
            ContentErrors: there are others; then no page is printed.
        """
        unseen = {name: look for name, (of, look) in looks.items() if self._known_of(name) != of}
        kept = {path: known[0] for path, known in self._pages.items()}
        fresh = [sheet for path, sheet in sheets.items() if kept.get(path) != sheet]
        prints = (partial(hands.page, sheet, judged) for sheet in fresh)
        done = hands.done([*unseen.values(), *prints], self._num_processes)
        with closing(done):
            for name, mistakes in zip(unseen, done, strict=False):
                assert isinstance(mistakes, list)
                self._found[name] = (looks[name][0], mistakes)
            _raise_any(mistake for name in looks for mistake in self._found[name][1])
            for sheet, one in zip(fresh, done, strict=True):
                if isinstance(one, Printed):
                    self._pages[sheet.path] = (sheet, one)
                else:
                    self._pages.pop(sheet.path, None)
                    yield from one

    def _known_of(self, name: str) -> object:
        """What the mistakes that are known of a file or a topic were looked for in."""
        return self._found[name][0] if name in self._found else None


def _looks(files: _Files, evidence: Evidence) -> Iterator[tuple[str, Look]]:
    """What looks for mistakes in each file and each topic, by name, and in what it looks."""
    book = files.book
    items = {
        id(lesson.model): topic.items for topic in book.topics for lesson in topic.lessons.values()
    }
    for document in book.documents:
        own = (document, items.get(id(document.model)), files.code([document]))
        look = partial(content_checks.of_document, evidence, document)
        yield document.source.file, (own, look)
    for page in book.handwritten:
        yield page.file, (page, partial(content_checks.of_handwritten, evidence, page))


def _raise_any(errors: Iterable[ContentError]) -> None:
    found = list(errors)
    if found:
        raise ContentErrors(found)


def _anchors(book: Book, pages: Mapping[str, Printed]) -> dict[str, dict[str, str]]:
    """The headings of the lessons that the guide names, as far as they are printed."""
    named = {edge.lesson.page for _, edge in book.guide.edges} if book.guide else set()
    return {
        name: headings.anchors(pages[path].content)
        for name in sorted(named)
        if (path := f"topics/{name}.md") in pages
    }


def _missing_sections(
    book: Book, anchors: Mapping[str, Mapping[str, str]]
) -> Iterator[ContentError]:
    """Sections that the guide names and their lessons lack."""
    for document in book.documents:
        if isinstance(document.model, GuideFile):
            yield from guide_checks.headings(document, anchors)


def _unused_terms(book: Book, pages: Mapping[str, Printed]) -> Iterator[ContentError]:
    """Terms of the glossary that no lesson uses."""
    used = {term for page in pages.values() for term in page.terms}
    for document in book.documents:
        if isinstance(document.model, GlossaryFile):
            for position, term in enumerate(document.model.terms):
                if term.id not in used:
                    message = f"no lesson uses {term.term!r}; delete the term, or use it"
                    yield document.error(("terms", position, "id"), message)


class _Files:
    """The documents of a book, by topic and by name, and the code that they list."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.by_name = {document.source.file: document for document in book.documents}
        self._texts: dict[str, str | None] = {}
        self._questions: dict[str, list[Document[Any]]] = {}
        for document in book.documents:
            if isinstance(document.model, QuizFile):
                folder = document.source.file.split("/")[-2]
                self._questions.setdefault(folder, []).append(document)

    def questions(self, topic: Topic) -> tuple[Document[Any], ...]:
        """The files that hold a topic's items."""
        return tuple(self._questions.get(topic.id, ()))

    def text(self, *starts: str) -> str:
        """What authors wrote in the files whose names begin so."""
        found = (one for name, one in self.by_name.items() if name.startswith(starts))
        return "\n".join(one.source.text for one in found)

    def code(self, documents: Iterable[Document[Any]]) -> Code:
        """The text of every file that documents list, or None where there is none."""
        paths = dict.fromkeys(path for document in documents for path in _listed(document))
        return tuple((path, self._text(path)) for path in paths)

    def _text(self, path: str) -> str | None:
        if path not in self._texts:
            self._texts[path] = listed_code.text(self.book.root, path)
        return self._texts[path]


class _Machines:
    """Which machine each page shows: a topic's pages the same one."""

    def __init__(self, files: _Files, evidence: Evidence) -> None:
        self._files, self._evidence = files, evidence
        self._known: dict[str, bool] = {}

    def decided(self, sheet: Sheet) -> Sheet:
        """The sheet, with the reference machine shown where its text needs it.

        The page of all claims names the machine beside each of them, and decides nothing.
        """
        if (sheet.source is None and sheet.topic is None) or sheet.path == EVIDENCE:
            return sheet
        of = f"content/topics/{sheet.topic.id}/" if sheet.topic else sheet.source or ""
        if of not in self._known:
            self._known[of] = shows_reference(self._text(of) + sheet.text, self._evidence)
        return replace(sheet, on_reference=self._known[of])

    def _text(self, of: str) -> str:
        """What decides: a topic's files, or a file and those set apart from it; of home, both."""
        if of == HOME:
            return self._files.text(of, "content/topics/")
        return self._files.text(of.removesuffix(".yml"))


def _listed(document: Document[Any]) -> Iterator[str]:
    """The files whose text a document shows."""
    yield from (one.path for one in document.listings)
    if isinstance(document.model, RetractionFile):
        named = (one.program for one in document.model.statements)
        yield from (repeats.path_of(name) for name in named if name)


def _sheets(files: _Files, judged: Judged) -> Iterator[Sheet]:
    """The sheets of a book, but for those of `_indexes`."""
    bare = _bare(files.book)
    for topic in files.book.topics:
        yield from _of_topic(files, bare, topic)
    yield from _of_the_book(files, bare, judged)


def _bare(book: Book) -> Book:
    """A book without what only some of its pages draw upon."""
    return replace(
        book, home=_NO_HOME, topics=(), retractions={}, tries=(), lost_tries=(), documents=(),
        handwritten=(), terms=(), synonyms=(),
        leads={}, guide=None, plan=None,
    )  # fmt: skip


def _named(book: Book) -> Book:
    """A book without what only some of its pages draw upon, but with the names of its topics."""
    topics = (replace(one, lessons={}, items={}, items_by_mode={}) for one in book.topics)
    return replace(_bare(book), topics=tuple(topics))


def _indexes(
    files: _Files, minutes: Mapping[str, int], used_in: Mapping[str, tuple[Use, ...]],
    anchors: Mapping[str, Mapping[str, str]],
) -> Iterator[Sheet]:  # fmt: skip
    """The index of each topic, home, the list of topics, the glossary, the guide; pages by hand.

    All tell what others take or use, or give way to the others where they have the same name.

    Args:
        files: the book's.
        minutes: of each page that stands in `_sheets`.
        used_in: the lessons among them that use each term.
        anchors: of the headings of the lessons that the guide names.
    """
    book, words, bare = files.book, interface_words(), _bare(files.book)
    about_items = files.code(one for topic in book.topics for one in files.questions(topic))
    for topic in book.topics:
        folder, own = f"topics/{topic.id}/", replace(topic, lessons={})
        yield Sheet(
            f"{folder}index.md", "topic.md.j2", replace(bare, topics=(own,)), topic.file.title,
            topic.file.summary, f"content/topics/{topic.id}/topic.yml", topic=own,
            code=files.code(files.questions(topic)),
            minutes={path: taken for path, taken in minutes.items() if path.startswith(folder)},
        )  # fmt: skip
    outlined = replace(bare, topics=tuple(replace(topic, lessons={}) for topic in book.topics))
    lessons = {path: taken for path, taken in minutes.items() if path.startswith("topics/")}
    ten = {name: book.retractions[name] for name in book.home.statements}
    home = replace(outlined, home=book.home, retractions=ten, guide=book.guide, plan=book.plan)
    yield Sheet(
        "index.md", "home.md.j2", home, book.home.title, book.home.about, "content/site.yml",
        code=about_items, minutes=lessons,
    )  # fmt: skip
    yield Sheet(
        "topics/index.md", "topics.md.j2", outlined, words["topics"]["title"],
        words["topics"]["lede"], None, code=about_items, minutes=lessons,
    )  # fmt: skip
    if book.terms:
        yield Sheet(
            "glossary.md", "glossary.md.j2", replace(outlined, terms=book.terms),
            words["glossary"]["title"], words["glossary"]["lede"], "content/glossary.yml",
            used_in=dict(used_in),
        )  # fmt: skip
    if book.guide:
        yield Sheet(
            "guide.md", "guide.md.j2", replace(_named(book), guide=book.guide), book.guide.title,
            book.guide.about, "content/guide.yml", anchors=dict(anchors), has_toc=True,
        )  # fmt: skip
    for page in book.handwritten:
        yield Sheet(
            page.path, "handwritten.md.j2", bare, page.title, page.description, page.file,
            text=page.body or "\n", has_toc=True,
        )  # fmt: skip


def _of_the_book(files: _Files, bare: Book, judged: Judged) -> Iterator[Sheet]:
    """The pages of claims, of retracted sentences and of machines."""
    book, words, claim_topics = files.book, interface_words(), topics_by_claim(files.book)
    named = _named(book)
    yield Sheet(
        EVIDENCE, "evidence.md.j2", named, words["evidence"]["title"],
        words["evidence"]["lede"], "content/claims", claim_groups=_by_experiment(judged.outcomes),
        claim_topics=claim_topics, has_toc=True,
    )  # fmt: skip
    first = _NO_HOME.model_copy(update={"statements": book.home.statements})
    sentences = [one for one in book.documents if isinstance(one.model, RetractionFile)]
    yield Sheet(
        "retracted.md", "retracted.md.j2", replace(named, retractions=book.retractions, home=first),
        words["retracted"]["title"], words["retracted"]["lede"], "content/statements.yml",
        claim_topics=claim_topics, code=files.code(sentences),
    )  # fmt: skip
    lessons = lessons_by_claim(book)
    resting = dict(_by_experiment(judged.outcomes))
    if book.plan:
        yield from _of_plans(files, named, book.plan, resting, lessons)
    yield Sheet(
        "machines/index.md", "machines.md.j2", bare, words["machines"]["title"],
        words["machines"]["lede"], None, under=EVIDENCE,
    )  # fmt: skip
    for name in book.machines:
        yield Sheet(
            f"machines/{name}.md", "machine.md.j2", bare,
            words["machines"]["one"].format(name=name), words["machines"]["about"], None,
            machine=name, under=EVIDENCE,
        )  # fmt: skip


def _of_experiments(
    files: _Files, judged: Judged, values: Mapping[str, Mapping[object, Value]]
) -> Iterator[Sheet]:
    """The pages of experiments' runs, which list what all other pages print of them.

    Args:
        files: the book's.
        judged: says which claims rest on each experiment.
        values: by experiment.
    """
    book, words = files.book, interface_words()
    lessons, resting = lessons_by_claim(book), dict(_by_experiment(judged.outcomes))
    for name, shown in book.traces.items():
        if not shown.is_plan:
            yield Sheet(
                f"evidence/{name}.md", "runs.md.j2", _named(book),
                words["runs"]["title"].format(experiment=name.replace("_", " ")),
                shown.trace.question, None, experiment=name, under=EVIDENCE,
                claim_lessons={
                    one: lessons[one] for one in resting.get(name, ()) if one in lessons
                },
                shown=tuple(values.get(name, {}).values()),
            )  # fmt: skip


def _teaches(path: str) -> bool:
    """Whether a page tells of runs; those of evidence and machines list all runs alike."""
    return not path.startswith(OF_EVIDENCE)


def _gather(values: dict[str, dict[object, Value]], pages: Iterable[Printed]) -> None:
    """Add what pages print of runs, each value once in each form."""
    for page in pages:
        for experiment, printed in page.values.items():
            found = values.setdefault(experiment, {})
            for one in printed:
                found.setdefault(one.printed_as, one)


def _of_plans(
    files: _Files,
    named: Book,
    plan: PlanFile,
    resting: Mapping[str, tuple[str, ...]],
    lessons: Mapping[str, tuple[Lesson, ...]],
) -> Iterator[Sheet]:
    """The sheet that leads to the models, and that of each model."""
    book, written = replace(named, plan=plan), "content/planner/plan.yml"
    yield Sheet(
        PLAN, "plan.md.j2", book, plan.title, plan.about, written,
        code=files.code([files.by_name[written]]), has_toc=True,
    )  # fmt: skip
    if plan.published and published_plans.EXPERIMENT in book.traces:
        yield Sheet(
            "plan/published.md", "published.md.j2", book, plan.published.title,
            plan.published.about, written, under=PLAN, has_toc=True,
        )  # fmt: skip
    for name in plan.models:
        shown = book.traces.get(name)
        if shown is not None and shown.grid is not None:
            title = plan.model_title.replace("{model}", shown.grid.title)
            used = {one: lessons[one] for one in resting.get(name, ()) if one in lessons}
            yield Sheet(
                shown.page.replace(".html", ".md"), "planned.md.j2", book, title, plan.about,
                None, experiment=name, under=PLAN,
                claim_lessons=used,
            )  # fmt: skip


def _of_topic(files: _Files, bare: Book, topic: Topic) -> Iterator[Sheet]:
    """The sheets of one topic's lessons, and of its summary."""
    about_items = files.code(files.questions(topic))
    for mode, lesson in topic.lessons.items():
        own = replace(topic, lessons={mode: lesson})
        listed = files.code([files.by_name[lesson.source.file]])
        shown = replace(bare, topics=(own,), terms=files.book.terms)
        if mode == "try":
            shown = replace(shown, tries=files.book.tries, lost_tries=files.book.lost_tries)
        if mode == "why":
            shown = replace(shown, guide=files.book.guide)
        if mode == "recall":  # it leads on to the questions of other topics
            outlined = tuple(replace(one, lessons={}) for one in files.book.topics)
            shown = replace(shown, topics=outlined)
        yield Sheet(
            f"topics/{topic.id}/{mode}.md", f"{mode}.md.j2", shown,
            lesson.model.title, topic.file.modes[mode], lesson.source.file, topic=own, mode=mode,
            code=(*listed, *about_items),
        )  # fmt: skip
    if topic.file.key_laws:
        own = replace(
            topic, lessons={m: one for m, one in topic.lessons.items() if m in summary.SUMMED_UP}
        )
        yield Sheet(
            f"topics/{topic.id}/summary.md", "summary.md.j2", replace(bare, topics=(own,)),
            interface_words()["summary"]["title"].format(topic=topic.file.title),
            topic.file.summary, f"content/topics/{topic.id}/topic.yml", topic=own,
            code=about_items,
        )  # fmt: skip


def _by_experiment(outcomes: Mapping[str, Outcome]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Claims by the experiment they rest on, in the order in which authors wrote them."""
    groups: dict[str, list[str]] = {}
    for name, outcome in outcomes.items():
        experiment = outcome.runs[0].split(".")[0] if outcome.runs else ""
        groups.setdefault(experiment, []).append(name)
    return tuple((name, tuple(claims)) for name, claims in sorted(groups.items()))
