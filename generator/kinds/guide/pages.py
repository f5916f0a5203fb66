"""The guide: from a symptom, by questions about a run, to a technique and what it costs."""

from collections.abc import Iterator, Sequence
from functools import partial

from markupsafe import Markup, escape

from proofbook.generator.content.book import Book
from proofbook.generator.kinds.figures import figures
from proofbook.generator.kinds.guide.words import Edge, GuideFile, Symptom, Technique
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements import element
from proofbook.generator.pages.elements.programs import run_link
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.views.claims import verdict_rows
from proofbook.generator.printing.markdown import plain
from proofbook.runners.system.kinds import filling

LEVEL = 2  # of the headings of a page's own questions
FEW = 5  # causes that a reader rules out before them


def sheets(book: Book) -> Iterator[Sheet]:
    """The guide, and each of its symptoms."""
    if written := book.file(GuideFile):
        sheet = partial(Sheet, source="content/guide.yml", has_toc=True)
        yield sheet("guide.md", "guide", written.title, written.about)
        for _, symptom in written.symptoms:
            path, title = f"guide/{symptom.id}.md", symptom.title
            yield sheet(path, "symptom", title, symptom.tell, of=symptom.id, under="guide.md")


def lead(draft: Draft) -> Iterator[element.Element]:
    """What leads here from the lesson that says which method to use when."""
    if written := draft.folio.book.file(GuideFile):
        start = 'If a run fails, start from the symptom: <a href="../../guide.html">{}</a>'
        yield element.Aside(Markup(start).format(draft.folio.in_link.line(written.title)))


def guide(draft: Draft) -> Iterator[element.Element | Markup]:
    """The page of all symptoms, and of the techniques that help."""
    written, folio = _guide(draft), draft.folio
    link = Markup('<a href="guide/{}.html">{}</a>')
    yield draft.lede(written.introduction)
    for group in written.groups:
        yield draft.heading(2, folio.line(group.title))
        if group.introduction:
            yield element.Block([draft.prose(group.introduction)])
        titles = ((symptom.id, folio.in_link.line(symptom.title)) for symptom in group.symptoms)
        yield element.ListOfLines([link.format(*title) for title in titles])
    yield from draft.passage("What helps, and what it costs", written.techniques_say)
    groups = []
    for title, techniques in written.techniques_by_group:
        rows = [_technique_row(technique, draft) for technique in techniques]
        groups.append((folio.line(title), rows))
    # The titles of groups belong to no technique; each technique is an entry of the search.
    words = [*(title for title, _ in groups), *(row for _, rows in groups for row in rows)]
    table = element.Made("TechniqueTable", visible=words, groups=groups)
    yield element.Fold(Markup("The techniques, a row each"), [table], is_found=True)


def _guide(draft: Draft) -> GuideFile:
    written = draft.folio.book.file(GuideFile)
    assert written
    return written


def _symptoms(draft: Draft) -> dict[str, Symptom]:
    return {symptom.id: symptom for _, symptom in _guide(draft).symptoms}


def _technique_row(
    technique: Technique, draft: Draft
) -> tuple[element.Heading, Markup, Markup, Markup]:
    """Its name, what it saved, what it costs, and the verdicts of the claims behind that."""
    texts = technique.name, technique.saved or "–", technique.costs
    name, saved, costs = map(draft.folio.line, texts)
    heading = element.Heading(3, name, f"technique-{technique.id}", is_anchored=False)
    claims = verdict_rows(technique.claims, draft.folio)
    return heading, saved, costs, element.worded("ClaimsBehind", claims=claims)


def symptom(draft: Draft) -> Iterator[element.Element | Markup]:
    """The page of a symptom: what to rule out, and questions about a run."""
    written = _symptoms(draft)[draft.sheet.of]
    yield element.Block([draft.prose(written.tell)])
    if written.read:
        read = element.Block([draft.prose(written.read)])
        yield element.Fold(Markup("What to record, and how to read it"), [read], is_found=True)
    causes, rarer = written.causes[:FEW], written.causes[FEW:]
    if causes:
        says = escape("We measured only those whose link leads to a program:")
        listed = [element.Block([says], tag="p"), draft.lines(causes)]
        yield element.Fold(Markup("Rule these causes out first"), listed, is_found=True)
    yield _questions(written.edges, "ask", draft)
    yield draft.heading(2, "If nothing here applies")
    if rarer:
        yield element.Block([escape("These causes are rarer:")], tag="p")
        yield draft.lines(rarer)
    yield element.Block([draft.prose(_guide(draft).otherwise)])
    link = Markup('<a class="pb-operate" href="{}guide.html">All symptoms</a>')
    yield element.Aside(link.format(draft.folio.root))


def _questions(edges: Sequence[Edge], above: str, draft: Draft) -> element.Made:
    """Questions about a run, in order, each with where a yes leads, and why."""
    questions = [_question(edge, f"{above}-{n}", draft) for n, edge in enumerate(edges, 1)]
    level = LEVEL + above.count("-")
    listed = questions if level == LEVEL else ()  # the search takes them for text
    return element.Made(
        "RunQuestions", visible=questions, level=level, questions=questions, root=draft.folio.root,
        headings=[element.Heading(LEVEL, q.asks, q.anchor, int(q.number)) for q in listed],
    )  # fmt: skip


def _question(edge: Edge, anchor: str, draft: Draft) -> element.Made:
    folio, (name, mode) = draft.folio, edge.lesson.page.split("/")
    asks, because = folio.line(edge.ask), folio.line(edge.because)
    href = folio.root + draft.gathered.sections(edge.lesson.page).get(edge.lesson.section, "")
    title = next(topic.file.title for topic in folio.book.topics if topic.id == name)
    words = f"{plain(folio.line(title))} › {folio.ui['modes'][mode]} › {edge.lesson.section}"
    leads = plan = Markup()
    for technique in (own for own in _guide(draft).techniques if own.id == edge.use):
        leads = folio.in_link.line(technique.name)
        if run := technique.planned:
            link = Markup('<a class="pb-label" href="{}{}">{}</a>')
            named = next(filling("name of a plan"))
            plan = link.format(folio.root, folio.place_of(run), named(run, folio))
    if edge.continue_at:
        leads = folio.in_link.line(_symptoms(draft)[edge.continue_at.partition("#")[0]].title)
    folio.shown_claims.clear()  # readers open the numbers of a step here alone
    behind = dict.fromkeys(run for claim in edge.claims for run in folio.judged(claim).runs)
    runs = [run_link(run, folio) for run in behind]
    evidence = [*draft.backing(edge.claims)]
    topics = {topic.id: topic.figures for topic in folio.book.topics}
    topic, _, figure = (edge.figure or "").partition("/")
    evidence += [figures.figure(figures.draw(topics[topic][figure], folio))] if figure else []
    below = [_questions(edge.edges, anchor, draft)] if edge.edges else []
    return element.Made(
        "RunQuestion", edge=edge, anchor=anchor, asks=asks,
        number=anchor.removeprefix("ask-").replace("-", "."),
        leads=leads,  # the technique, or the symptom at which to go on
        because=because, href=href, lesson=escape(words), runs=runs, plan=plan, evidence=evidence,
        below=below,  # questions to which a yes leads
    )  # fmt: skip
