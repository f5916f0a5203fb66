"""A lab: its requirements with their values, its starter, and what its programs showed.

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
from runners.core.trace.records import Run
from runners.labs.shelf import EVERYWHERE, LENT
from runners.traces.differences import wrong_programs

ENDED = {"deadlocked": "it hangs", "failed": "it ends with an exception"}


def named(topic: Topic, folio: Folio) -> list[View]:
    """The labs of a topic: their page's name, and what they are called."""
    return [
        View(
            href=f"lab-{name}.html", title=folio.in_link.line(one.model.title), kind=one.model.kind
        )
        for name, one in topic.labs.items()
    ]


def requirements(name: str, lab: LabFile, folio: Folio) -> list[Row]:
    """What has to hold, its law, and the law's value in the page's case."""
    return [
        [
            folio.line(one.says),
            folio.line(one.formula),
            _bytes(f"{name}_solved", id_, "allowed", folio),
        ]
        for id_, one in lab.requirements.items()
    ]


def solved(name: str, lab: LabFile, folio: Folio) -> list[Row]:
    """What a solution measured beside what is allowed, where that is a number."""
    run = f"{name}_solved"
    return [
        [folio.line(one.says), *(_bytes(run, id_, side, folio) for side in ("allowed", "observed"))]
        for id_, one in lab.requirements.items()
        if _has(run, f"{id_}_observed", folio)
    ]


def wrong(name: str, topic: Topic, folio: Folio) -> list[Row]:
    """Programs that people write: what somebody thought, and which requirement fails first."""
    lab = topic.labs[name].model
    file = folio.book.root / topic.labs[name].source.file
    rows: list[Row] = []
    for program in wrong_programs(file.with_name("wrong.yml")):
        mistake = program.mistake.replace("`", "")
        run = f"{LABS}.{name}_{program.name}"
        made = folio.run(run)
        first = made.ranks[0].measures.get("first_failed") if made and made.ranks else None
        failed = lab.requirements.get(str(first)) if first else None
        fails = failed.says if failed else EVERYWHERE["says"] if first == LENT else "–"
        said = str(made.ranks[0].measures.get("says", "")) if made and first else _ended(made)
        rows.append([
            Markup('<a class="pb-label" href="{}{}">{}</a>').format(
                "../" * folio.path.count("/"), folio.place_of(run), label(mistake)
            ),
            folio.line(fails),
            label(said.replace("`", "")),
        ])  # fmt: skip
    return rows


def starter(name: str, topic: Topic) -> Listing:
    """What a reader begins with."""
    folder = topic.labs[name].source.file.rpartition("/")[0]
    return Listing(path=f"{folder}/starter.py", title="The starter")


def _bytes(run: str, requirement: str, side: str, folio: Folio) -> Markup | str:
    name = f"{requirement}_{side}"
    if not _has(run, name, folio):
        return "–"
    return folio.cell(f"{LABS}.{run}.ranks[0].measures.{name}")


def _has(run: str, measure: str, folio: Folio) -> bool:
    found = folio.run(f"{LABS}.{run}")
    return bool(found and found.ranks and measure in found.ranks[0].measures)


def _ended(run: Run | None) -> str:
    return ENDED.get(run.status, run.status) if run else "skipped"
