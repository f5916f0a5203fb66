"""A lab: its requirements with their values, its starter, and the grades of its programs.

The values are of the experiment `labs`, which runs each solution and each wrong program in the case
that `python -m runners lab` tries first.
"""

from collections.abc import Iterator, Mapping

from markupsafe import Markup, escape

from proofbook.companions.labs.shelf import EVERYWHERE, LENT
from proofbook.companions.labs.words import LabFile, LabList, Labs
from proofbook.generator.content.book import Book, Topic
from proofbook.generator.content.documents import Document
from proofbook.generator.content.exhibit import Listing
from proofbook.generator.kinds.lessons import parts
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Aside, Block, Content, Element, Fold
from proofbook.generator.pages.elements.programs import Command
from proofbook.generator.pages.elements.tables import Row, Table
from proofbook.generator.pages.environment import label
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.way import Step
from proofbook.generator.printing.folio import Folio
from proofbook.runners.traces.differences import wrong_programs

LABS = "labs"  # the experiment that grades
ENDED = {"deadlocked": "it hangs", "failed": "it ends with an exception"}
HELD = Markup(
    '<p>Runs check each line: with the sizes of this page, <span class="pb-label">seed 0</span>, '
    "and then with sizes, values and a number of ranks of their own. A bound on memory counts "
    "tensors, numpy arrays and long lists. In every lab, what the caller passes stays as it was "
    "unless the task is to change it, and a barrier, a new process group or a collective of "
    "objects fails.</p>"
)
BEGIN = Markup(
    "<p>It writes <code>labs/{0}.py</code>, runs it, and prints a line for each requirement. With "
    "<code>--watch</code> it runs again at each save. Where the package is installed and there is "
    "no clone, the command is <code>proofbook lab {0}</code>.</p>"
)
PAGES = {  # by hand, and what leads to them
    "judge": "Tests of your own programs can use the same judge",
    "verify": "A training script of your own, compared with one process",
}


def lab(draft: Draft) -> Iterator[Element | Markup]:
    """The page of a lab."""
    topic, name, folio = draft.topic, draft.sheet.of, draft.folio
    own, by_hand = _labs(draft)[name], folio.book.handwritten_by_name
    written = own.model
    figure = [parts.drawn(draft, topic.figures[written.figure])] if written.figure else []
    yield from _task(draft, name, figure)
    yield draft.heading(2, "Hints")
    for number, hint in enumerate(written.hints, 1):
        summary = Markup('Hint <span class="pb-label">{}</span>').format(number)
        yield Fold(summary, [draft.prose(hint)], "pb-hint")
    yield draft.heading(2, "What runs showed")
    if measured := _solved(name, written, folio):
        table = Table(["Requirement", "#Allowed", "#Measured"], measured)
        yield Fold(Markup("What our solution measured"), [table])
    if mistakes := _wrong(name, own, folio):
        table = Table(["What they do", "Fails first", "What was seen"], mistakes)
        yield Fold(Markup("Programs that people write, and what fails first"), [table])
    link = Markup('{}<a href="{}.html">{}</a>')
    for page, leads in PAGES.items():
        if page in by_hand:
            yield Aside(link.format(f"{leads}: ", folio.root + page, by_hand[page].title))


def _labs(draft: Draft) -> dict[str, Document[LabFile]]:
    return draft.folio.book.part(Labs).of(draft.topic.id)


def sheets(book: Book) -> Iterator[Sheet]:
    """The labs of all topics."""
    for topic in book.topics:
        for name, lab in book.part(Labs).of(topic.id).items():
            path, model = f"topics/{topic.id}/lab-{name}.md", lab.model
            yield Sheet(path, "lab", model.title, model.task, lab.source.file, topic=topic, of=name)


def listed(fence: LabList, _: int, draft: Draft) -> Iterator[Element]:
    """A row for each lab of a kind, with its topic."""
    folio, link = draft.folio, Markup('<a href="{}topics/{}/lab-{}.html">{}</a>')
    rows = [
        [
            link.format(folio.root, topic.id, name, folio.in_link.line(lab.model.title)),
            folio.line(topic.file.title),
        ]
        for topic in folio.book.topics
        for name, lab in folio.book.part(Labs).of(topic.id).items()
        if lab.model.kind == fence.kind
    ]
    yield Table(["Lab", "Topic"], rows)


def steps(topic: Topic, folio: Folio, _: Mapping[str, int]) -> Iterator[Step]:
    """The labs of a topic on its way."""
    for name, lab in folio.book.part(Labs).of(topic.id).items():
        title, page = folio.in_link.line(lab.model.title), f"{topic.id}/lab-{name}"
        yield Step(f"lab-{name}.html", title, Markup(), page, "", kind="lab", sort=escape("Lab"))


def for_a_class(draft: Draft) -> Iterator[tuple[Markup, list[Element | Markup]]]:
    """The title of a topic's first lab, and its task for paper."""
    for name, lab in list(_labs(draft).items())[:1]:
        figure = lab.model.figure
        pictured = [parts.first_state(draft, draft.topic.figures[figure])] if figure else []
        yield draft.folio.line(lab.model.title), [*_task(draft, name, pictured)]


def _task(draft: Draft, name: str, figure: Content) -> Iterator[Element | Markup]:
    """What a lab asks, with its figure, and with what it begins."""
    folio, own = draft.folio, _labs(draft)[name]
    written = own.model
    yield draft.heading(2, "The task" if written.kind == "write" else "The report")
    yield Block([draft.prose(written.task)])
    yield from figure
    yield draft.heading(2, "What has to hold")
    yield HELD
    rows = [
        [*map(folio.line, (law.says, law.formula)), _bytes(name, id_, "allowed", folio) or "–"]
        for id_, law in written.requirements.items()
    ]
    yield Table(["Requirement", "Law", "#Here"], rows)
    yield draft.heading(2, "Begin")
    yield Block([Command(f"python -m runners lab {name}")], "pb-command")
    yield BEGIN.format(name)
    folder = own.source.file.rpartition("/")[0]
    yield draft.program(Listing(path=f"{folder}/starter.py", title="The starter"))


def _solved(name: str, lab: LabFile, folio: Folio) -> list[Row]:
    return [
        [folio.line(law.says), _bytes(name, id_, "allowed", folio) or "–", observed]
        for id_, law in lab.requirements.items()
        if (observed := _bytes(name, id_, "observed", folio))
    ]


def _wrong(name: str, lab: Document[LabFile], folio: Folio) -> list[Row]:
    says = {law: rule.says for law, rule in lab.model.requirements.items()}
    says[LENT] = EVERYWHERE["says"]
    rows: list[Row] = []
    for program in wrong_programs(folio.book.root.joinpath(lab.source.file).with_name("wrong.yml")):
        path = f"{LABS}.{name}_{program.name}"
        run = folio.run(path)
        measures = run.ranks[0].measures if run and run.ranks else {}
        ended = ENDED.get(run.status, run.status) if run else "skipped"
        first = str(measures.get("first_failed", ""))
        link = Markup('<a class="pb-label" href="{}{}">{}</a>')
        mistake = label(program.mistake.replace("`", ""))
        message = str(measures.get("says", "")) if first else ended
        rows.append([
            link.format(folio.root, folio.place_of(path), mistake),
            folio.line(says.get(first, "–")),
            label(message.replace("`", "")),
        ])  # fmt: skip
    return rows


def _bytes(lab: str, requirement: str, side: str, folio: Folio) -> Markup | None:
    run, name = folio.run(path := f"{LABS}.{lab}_solved"), f"{requirement}_{side}"
    value = folio.reading(path, "ranks", 0, "measures", name) if run and run.ranks else None
    return folio.show(value) if value else None
