"""Layouts that lessons name, compared with all others of the committed plans.

In: the decisions of a lesson or the techniques of the guide, and the evidence. Out: the layouts
that each was compared with, and an error where one of these is better in something and worse in
nothing: memory, bytes over each tier of links and, where computing decides the time of both, their
place by the rule.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from generator.content.documents import Document
from generator.content.errors import ContentError
from generator.content.guide import GuideFile
from generator.content.lesson import WhyFile
from generator.content.yaml_source import Path
from generator.values.evaluation import Evidence
from generator.values.value import Value, numeric
from runners.planner.answers.answer import Layout, answer_of, layout, rivals
from runners.planner.answers.law_of_time import Cluster

WRITTEN: dict[type[Any], str] = {WhyFile: "decisions", GuideFile: "techniques"}


class Planned(NamedTuple):
    """A layout that a file names.

    Attributes:
        at: where it stands in the file.
        run: its path.
        layout: on as many devices of the Plan pages as it has.
        others: the layouts that it was compared with, by the names of their runs.
        fits: memory is free, so that needing less of it is no gain.
    """

    at: Path
    run: str
    layout: Layout
    others: dict[str, Layout]
    fits: bool

    @property
    def better(self) -> list[str]:
        """The layouts that are better in something and worse in nothing."""
        found = self.others.items()
        return [k for k, v in found if v.dominates(self.layout, is_memory_free=self.fits)]


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Layouts that another one dominates."""
    for one in planned(evidence, document.model):
        if one.better:
            message = f"{one.run} is dominated by {', '.join(one.better)}; name one of those"
            yield document.error((*one.at, "planned"), message)


def planned(evidence: Evidence, model: Any) -> Iterator[Planned]:  # noqa: ANN401
    """Every layout that a file names; none where the book has no plans.

    Where memory is free, it is compared with those that fit the device of the Plan pages.
    """
    key, plan = WRITTEN.get(type(model)), evidence.book.plan
    if key is None or plan is None:
        return
    device = plan.devices[0]
    rates = [_number(evidence, rate) for rate in (device.compute, device.link, device.between)]
    node, memory = Cluster(1, plan.per_node, *rates), _number(evidence, device.memory)
    for position, advice in enumerate(getattr(model, key)):
        experiment, _, name = (advice.planned or "").partition(".")
        trace = evidence.book.traces.get(experiment)
        if trace is None or trace.grid is None or name not in trace.trace.runs:
            continue  # said where it is named
        rows = rivals(name, trace.grid)
        cluster = node.of(rows[name].state.devices)
        layouts = {
            f"{experiment}.{other}": layout(answer_of(row, trace.grid), cluster, memory)
            for other, row in rows.items()
        }
        mine = layouts.pop(advice.planned)
        others = {k: v for k, v in layouts.items() if not advice.fits or v.verdict == "fits"}
        yield Planned((key, position), advice.planned, mine, others, advice.fits)


def _number(evidence: Evidence, expression: str) -> float:
    found = evidence.evaluate(expression).result
    return numeric(found) if isinstance(found, Value) else float("inf")
