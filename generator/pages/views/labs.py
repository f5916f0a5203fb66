"""A lab: its requirements with their values, its starter, and the grades of its programs.

The values are of the experiment `labs`, which runs each solution and each wrong program in the case
that `python -m runners lab` tries first.
"""

from collections.abc import Iterator

from markupsafe import Markup

from generator.content.book import Topic
from generator.content.exhibit import Listing
from generator.content.lab import LabFile
from generator.content.shelf import LABS
from generator.pages.draft import Draft
from generator.pages.elements.element import Aside, Block, Content, Element, Fold
from generator.pages.elements.programs import Command
from generator.pages.elements.tables import Row, Table
from generator.pages.environment import label
from generator.printing.folio import Folio
from runners.labs.shelf import EVERYWHERE, LENT
from runners.traces.differences import wrong_programs

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
    topic, name, folio = draft.topic, draft.sheet.lab or "", draft.folio
    written = topic.labs[name].model
    yield from task(draft, [draft.drawn(topic.figures[written.figure])] if written.figure else [])
    yield draft.heading(2, "Hints")
    for number, hint in enumerate(written.hints, 1):
        summary = Markup('Hint <span class="pb-label">{}</span>').format(number)
        yield Fold(summary, [draft.prose(hint)], "pb-hint")
    yield draft.heading(2, "What runs showed")
    if measured := _solved(name, written, folio):
        table = Table(["Requirement", "#Allowed", "#Measured"], measured)
        yield Fold(Markup("What our solution measured"), [table])
    if mistakes := _wrong(name, topic, folio):
        table = Table(["What they do", "Fails first", "What was seen"], mistakes)
        yield Fold(Markup("Programs that people write, and what fails first"), [table])
    for page, leads in PAGES.items():
        if page in folio.book.handwritten_by_name:
            title = folio.book.handwritten_by_name[page].title
            link = Markup('{}: <a href="{}{}.html">{}</a>')
            yield Aside(link.format(leads, folio.root, page, title))
    if len(topic.labs) > 1:
        link = Markup('<a href="lab-{}.html">{}</a>')
        titles = ((name, folio.in_link.line(lab.model.title)) for name, lab in topic.labs.items())
        links = Markup(" · ").join(link.format(*title) for title in titles)
        yield Aside(Markup("Labs of this topic: {}").format(links))


def task(draft: Draft, figure: Content) -> Iterator[Element | Markup]:
    """What a lab asks, with its figure, and with what it begins."""
    name, topic = draft.sheet.lab or "", draft.topic
    written = topic.labs[name].model
    yield draft.heading(2, "The task" if written.kind == "write" else "The report")
    yield Block([draft.prose(written.task)])
    yield from figure
    yield draft.heading(2, "What has to hold")
    yield HELD
    rows = _requirements(name, written, draft.folio)
    yield Table(["Requirement", "Law", "#Here"], rows)
    yield draft.heading(2, "Begin")
    yield Block([Command(f"python -m runners lab {name}")], "pb-command")
    yield BEGIN.format(name)
    folder = topic.labs[name].source.file.rpartition("/")[0]
    yield draft.program(Listing(path=f"{folder}/starter.py", title="The starter"))


def _requirements(name: str, lab: LabFile, folio: Folio) -> list[Row]:
    """A row for each requirement of a lab: words, formula, bytes allowed in the solution's run."""
    return [
        [folio.line(law.says), folio.line(law.formula), _bytes(name, id_, "allowed", folio) or "–"]
        for id_, law in lab.requirements.items()
    ]


def _solved(name: str, lab: LabFile, folio: Folio) -> list[Row]:
    """A row for each requirement that the solution's run has: words, bytes allowed and observed."""
    return [
        [folio.line(law.says), _bytes(name, id_, "allowed", folio) or "–", observed]
        for id_, law in lab.requirements.items()
        if (observed := _bytes(name, id_, "observed", folio))
    ]


def _wrong(name: str, topic: Topic, folio: Folio) -> list[Row]:
    """A row for each wrong program of a lab: mistake, requirement it failed first, the message."""
    lab = topic.labs[name].model
    file = folio.book.root / topic.labs[name].source.file
    rows: list[Row] = []
    for program in wrong_programs(file.with_name("wrong.yml")):
        mistake = program.mistake.replace("`", "")
        run = f"{LABS}.{name}_{program.name}"
        measured = folio.run(run)
        measures = measured.ranks[0].measures if measured and measured.ranks else {}
        first = measures.get("first_failed")
        failed = lab.requirements.get(str(first)) if first else None
        fails = failed.says if failed else EVERYWHERE["says"] if first == LENT else "–"
        ended = ENDED.get(measured.status, measured.status) if measured else "skipped"
        message = str(measures.get("says", "")) if first else ended
        rows.append([
            Markup('<a class="pb-label" href="{}{}">{}</a>').format(
                "../" * folio.path.count("/"), folio.place_of(run), label(mistake)
            ),
            folio.line(fails),
            label(message.replace("`", "")),
        ])  # fmt: skip
    return rows


def _bytes(lab: str, requirement: str, side: str, folio: Folio) -> Markup | None:
    path = f"{LABS}.{lab}_solved"
    run = folio.run(path)
    name = f"{requirement}_{side}"
    value = folio.reading(path, "ranks", 0, "measures", name) if run and run.ranks else None
    return folio.show(value) if value else None
