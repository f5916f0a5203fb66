"""A lab: its requirements with their values, its starter, and the grades of its programs.

The values are of the experiment `labs`, which runs each solution and each wrong program in the case
that `python -m runners lab` tries first.
"""

from markupsafe import Markup

from generator.content.book import Topic
from generator.content.exhibit import Listing
from generator.content.lab import LabFile
from generator.content.shelf import LABS
from generator.pages.view import Row, View, label
from generator.printing.folio import Folio
from runners.labs.shelf import EVERYWHERE, LENT
from runners.traces.differences import wrong_programs

ENDED = {"deadlocked": "it hangs", "failed": "it ends with an exception"}


def named(topic: Topic, folio: Folio) -> list[View]:
    """A `View` for each lab of a topic: its address, title and kind."""
    return [
        View(
            href=f"lab-{name}.html", title=folio.in_link.line(lab.model.title), kind=lab.model.kind
        )
        for name, lab in topic.labs.items()
    ]


def requirements(name: str, lab: LabFile, folio: Folio) -> list[Row]:
    """A row for each requirement of a lab: words, formula, bytes allowed in the solution's run."""
    return [
        [folio.line(law.says), folio.line(law.formula), _bytes(name, id_, "allowed", folio) or "–"]
        for id_, law in lab.requirements.items()
    ]


def solved(name: str, lab: LabFile, folio: Folio) -> list[Row]:
    """A row for each requirement that the solution's run has: words, bytes allowed and observed."""
    return [
        [folio.line(law.says), _bytes(name, id_, "allowed", folio) or "–", observed]
        for id_, law in lab.requirements.items()
        if (observed := _bytes(name, id_, "observed", folio))
    ]


def wrong(name: str, topic: Topic, folio: Folio) -> list[Row]:
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


def starter(name: str, topic: Topic) -> Listing:
    """The program with which a reader begins."""
    folder = topic.labs[name].source.file.rpartition("/")[0]
    return Listing(path=f"{folder}/starter.py", title="The starter")


def _bytes(lab: str, requirement: str, side: str, folio: Folio) -> Markup | None:
    path = f"{LABS}.{lab}_solved"
    run = folio.run(path)
    name = f"{requirement}_{side}"
    value = folio.reading(path, "ranks", 0, "measures", name) if run and run.ranks else None
    return folio.show(value) if value else None
