"""Deep: its first page, with an overview and entries of the others, and the pages of its chain."""

from collections.abc import Iterator

from markupsafe import Markup

from proofbook.generator.kinds.lessons import parts
from proofbook.generator.kinds.lessons.chain import HOOD, chain
from proofbook.generator.kinds.lessons.words import BuildStep, DeepFile, Myth, Pitfall
from proofbook.generator.kinds.questions.kinds.arranged import Ordering
from proofbook.generator.kinds.questions.kinds.typed import Number, Predict
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements import programs
from proofbook.generator.pages.elements.element import Aside, Block, Element, Fold, Made
from proofbook.generator.pages.elements.programs import ListedProgram, PrintedText, WholeProgram
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.printing.markdown import num_links as count_of_links

Parts = Iterator[Element | Markup]
# Keys whose texts stand on the page that lists the parts.
LISTED_WITH = frozenset({"introduction", "overview", "mental_model", "concept", "takeaways"})


def num_links(sheet: Sheet) -> int:
    """The links of the page that lists the parts of the chain; no other page has so many."""
    deep = sheet.topic.lessons["deep"] if sheet.topic else None
    if deep is None or not isinstance(deep.model, DeepFile):
        return 0
    texts = (field.text for field in deep.fields if LISTED_WITH.intersection(map(str, field.path)))
    listed = sum(1 + len(part.places) for part in chain(deep.model))
    return listed + sum(map(count_of_links, texts))


def deep(draft: Draft) -> Parts:
    """The first page of Deep."""
    lesson, in_link = draft.lesson(DeepFile), draft.folio.in_link
    overview, model = lesson.overview, lesson.mental_model
    yield draft.heading(2, "Overview")
    texts = overview.what, overview.why_it_matters, overview.where_it_fits
    words: list[Element | Markup] = [*draft.texts(*texts)]
    for way, places in {"Before": overview.before, "After": overview.after}.items():
        links = Markup(" · ").join(map(draft.line, places))
        words += [Aside(Markup("{} this: {}").format(way, links))] if places else []
    yield Block(words)
    yield draft.heading(2, "Mental model")
    insight, analogy = draft.insight(model.core_idea), draft.texts(model.analogy)
    yield Block([insight, *analogy, *parts.figure(draft, model.figure)])
    for is_core, heading in {True: "Build-up", False: "Going further"}.items():
        yield draft.heading(2, heading)
        pages = []
        for page in (page for page in chain(lesson) if page.is_core is is_core):
            titles = [
                in_link.line(title) for title in (page.title, *(name for _, name, _ in page.places))
            ]
            pages.append((page, titles, draft.prose(page.step.concept) if page.step else Markup()))
        yield Made("ChainedPages", is_found=False, pages=pages)
    yield draft.heading(2, "Key takeaways")
    yield draft.lines(lesson.takeaways, "ol")


def chained(draft: Draft) -> Parts:
    """A page of the chain: a step of the build-up, sections, myths or pitfalls."""
    lesson = draft.lesson(DeepFile)
    page = next(part for part in chain(lesson) if part.id == draft.sheet.of)
    if page.opening:
        yield draft.lede(page.opening)
    if page.title == HOOD:
        yield from parts.section_body(draft, lesson.under_the_hood)
    is_divided = len(page.groups) > 1 or page.title == HOOD
    for title, sections in page.groups.items():
        yield from parts.sections(draft, sections, 2 + is_divided, title if is_divided else "")
    for number, part in enumerate(page.parts, 1):
        if isinstance(part, BuildStep):
            yield from _step(part, draft)
        elif isinstance(part, Myth):
            yield from _myth(part, draft)
        elif isinstance(part, Pitfall):
            title = draft.folio.line(part.title)
            yield draft.heading(2, title, number if len(page.parts) > 1 else None)
            yield from parts.item(draft, part.commit, "commit")
            what = "what goes wrong, how to fix it, the root cause"
            yield draft.waiting(part.commit, what, _cause(part, draft))


def _step(step: BuildStep, draft: Draft) -> Parts:
    told = Block([draft.prose(step.text), *parts.figure(draft, step.figure)])
    asked = parts.item(draft, step.commit, "before")
    is_late = isinstance(draft.topic.items.get(step.commit or ""), Number | Predict | Ordering)
    yield from [told, *asked] if is_late else [*asked, told]
    what = "the result" + ", the insight" * bool(step.insight)
    result: list[Element | Markup] = [draft.heading(2, "Result"), draft.prose(step.result)]
    result += parts.figure(draft, step.shows)
    if step.table:
        result += draft.table(step.table, draft.line(step.table.first_column or "What"))
    if step.insight:
        result.append(draft.insight(step.insight))
    if step.program:
        result += draft.explained(step.program)
    result += draft.backing(step.claims, step.sources)
    yield draft.waiting(step.commit, what, result)


def _myth(myth: Myth, draft: Draft) -> Parts:
    yield draft.heading(2, Markup("“{}”").format(draft.folio.line(myth.belief)))
    yield from parts.item(draft, myth.commit, "commit")
    told = (
        ("Result of a run", myth.showed),
        ("The mechanism", myth.mechanism),
        ("Why it matters", myth.why_it_matters),
    )
    rows = [Markup("<dt>{}</dt><dd>{}</dd>").format(name, draft.prose(text)) for name, text in told]
    drawn, after = parts.figure(draft, myth.shows), myth.commit or ""
    content = [Block(rows, "pb-parts", "dl"), *drawn, *draft.verdicts(myth.claims)]
    yield Fold(Markup("The result, and why"), content, after=after, is_found=not after)


def _cause(pitfall: Pitfall, draft: Draft) -> Parts:
    """Both programs of a pitfall, and the cause; its question has shown the wrong one."""
    difference = programs.difference(pitfall.wrong, pitfall.right, draft.folio)
    wrong, right = difference.wrong, difference.right
    if not pitfall.commit:
        yield difference
    sides = [
        _side("Wrong", wrong, pitfall.wrong_says, draft),
        _side("Right", right, pitfall.right_says, draft),
    ]
    yield Block(sides, "pb-sides pb-listing", is_found=False)
    yield draft.insight(f"*Cause:* {pitfall.root_cause}")
    is_printed = not (pitfall.commit or difference.lines)
    listed = [right] if pitfall.commit else [wrong, right]
    whole = [WholeProgram(listing, is_printed=is_printed) for listing in listed if listing.file]
    yield Block(whole, "pb-listing")


def _side(word: str, program: ListedProgram, says: str, draft: Draft) -> Block:
    title = Markup('<span class="pb-{}">{}</span>').format(word.lower(), word)
    if program.output.run:
        title += Markup(" · {}<br>\n{}").format(program.output.status, program.output.link)
    output = PrintedText(program.output.text)
    return Block([Aside(title, "pb-listing-title"), output, draft.prose(says)])
