"""The plans of a book: the committed grids, and what is wrong in the words of their pages.

In: `content/planner/`. Out: traces that no machine measured, and every mistake.
"""

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from proofbook.companions.planner.answers import published
from proofbook.companions.planner.answers.plan_grid import PREFIX, as_trace, read_grid
from proofbook.companions.planner.answers.published import PEAKS
from proofbook.companions.planner.words import PlanFile
from proofbook.generator.content.book import Book
from proofbook.generator.content.claim import Reference
from proofbook.generator.content.documents import Document
from proofbook.generator.content.errors import Files, nearest
from proofbook.generator.content.shelf import IsStale, TraceOnPage
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import Value
from proofbook.runners.core.trace.records import Machine
from proofbook.runners.traces import files as trace_files


def grids(book: Book, _: object) -> list[str]:
    """The names of the committed plans of models."""
    return [name for name, trace in book.traces.items() if trace.held]


def page_of(experiment: str) -> str:
    """The path of a page: plan/PRESET.html, or plan.html of what is computed for it."""
    if (comparison := published.COMPARISONS.get(experiment)) and not comparison.simulates:
        return "plan.html"
    return f"plan/{experiment.removeprefix(PREFIX)}.html"


def traces(files: Files, machine: Machine, is_stale: IsStale) -> dict[str, TraceOnPage]:
    """The committed plans of each preset, and what is computed of published numbers."""
    by_experiment = {}
    for path in sorted((files.content / "planner").rglob("*.json")):
        grid = trace = None
        if path.parent.name != "plans":
            trace = files.read_or_refuse(trace_files.read, path)
        elif grid := files.read_or_refuse(read_grid, path):
            trace = as_trace(grid)
        if trace is None:
            continue
        file = path.relative_to(files.content).as_posix()
        try:
            by_experiment[trace.experiment] = TraceOnPage(
                trace,
                machine,
                is_stale=is_stale(trace),
                file=file,
                held=grid,
                nature="simulated" if page_of(trace.experiment) != "plan.html" else "computed",
                own_page=page_of(trace.experiment),
            )
        except ValidationError as error:  # in a list that plans are made from
            message = f"{error.title}: {error.errors()[0]['msg']}"
            files.refuse(files.content / "planner", message)
    return by_experiment


def published_references(pages: Mapping[str, TraceOnPage]) -> Iterator[Reference]:
    """Yield a `Reference` per published number that rows of the pages' traces are compared with."""
    comparisons = (pages[name].runs for name in published.COMPARISONS if name in pages)
    for name, row in (pair for runs in comparisons for pair in runs.items()):
        texts = {key: str(value) for key, value in row.settings.items()}
        for kind, size in published.published_bytes_of(row):
            yield Reference(
                id=published.reference_of(name, kind), title=texts["case"], value=size,
                says=f"{texts[f'field_{kind}']}.", unit="bytes", where=texts["where"],
                url=texts["url"],
            )  # fmt: skip


def mistakes(evidence: Evidence, document: Document[PlanFile]) -> Iterator[Mistake]:
    """Rates of the device in a wrong unit; words for rows that nobody published."""
    for key, unit in (("compute", "FLOP/s"), ("link", "bytes/s"), ("between", "bytes/s")):
        rate = evidence.evaluate(getattr(document.model.device, key)).result
        if isinstance(rate, Value) and str(rate.unit) != unit:
            yield ("device", key), f"in {rate.unit}, not in {unit}"
    page, peaks = document.model.published, evidence.book.traces.get(PEAKS.experiment)
    runs = peaks.runs.values() if page and peaks else ()
    rows = [str(run.settings["id"]) for run in runs if "id" in run.settings]
    for key in ("variants", "notes") if rows else ():
        for row in getattr(page, key).keys() - {*rows}:
            yield ("published", key, row), f"no published row {row!r}{nearest(row, rows)}"
