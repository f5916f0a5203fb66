"""Layouts that files of the book name: an error where another one is better.

That is, in something, and worse in nothing: memory, bytes over each tier of links and, where
computing decides the time of both, their place by the rule.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from proofbook.companions.planner.answers.answer import Layout, answer_of, layout_of, rivals
from proofbook.companions.planner.answers.law_of_time import Cluster
from proofbook.companions.planner.words import PlanFile
from proofbook.generator.content.documents import Document
from proofbook.generator.content.yaml_source import Mistake, Path
from proofbook.generator.kinds.guide.words import GuideFile
from proofbook.generator.kinds.lessons.words import WhyFile
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import Value, numeric

WRITTEN: dict[type[Any], str] = {WhyFile: "decisions", GuideFile: "techniques"}


class Planned(NamedTuple):
    """A layout that a file names."""

    at: Path  # where it stands in the file
    run: str  # its path
    layout: Layout  # on as many devices of the Plan pages as it has
    others: dict[str, Layout]  # the layouts that it was compared with, by the names of their runs
    fits: bool  # memory is free, so that needing less of it is no gain

    @property
    def better(self) -> list[str]:
        """Rival layouts that dominate this one."""
        others = self.others.items()
        return [k for k, v in others if v.dominates(self.layout, is_memory_free=self.fits)]


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[Mistake]:
    """Yield (path, message): layouts that another one dominates."""
    for named in planned(evidence, document.model):
        if named.better:
            message = f"{named.run} is dominated by {', '.join(named.better)}; name one of those"
            yield (*named.at, "planned"), message


def planned(evidence: Evidence, model: Any) -> Iterator[Planned]:
    """Yield a `Planned` for each layout that a file's model names, with its rivals; or nothing.

    Where memory is free, it is compared with those that fit the device of the Plan pages.
    """
    key, plan = WRITTEN.get(type(model)), evidence.book.file(PlanFile)
    if key is None or plan is None:
        return
    device = plan.device
    rates = [_number(evidence, rate) for rate in (device.compute, device.link, device.between)]
    node, memory = Cluster(1, plan.per_node, *rates), _number(evidence, device.memory)
    for position, advice in enumerate(getattr(model, key)):
        experiment, _, name = (advice.planned or "").partition(".")
        trace = evidence.book.traces.get(experiment)
        if trace is None or trace.held is None or name not in trace.trace.runs:
            continue  # said where it is named
        rows = rivals(name, trace.held)
        cluster = node.with_devices(rows[name].state.devices)
        layouts = {
            f"{experiment}.{other}": layout_of(answer_of(row, trace.held), cluster, memory)
            for other, row in rows.items()
        }
        mine = layouts.pop(advice.planned)
        others = {k: v for k, v in layouts.items() if not advice.fits or v.verdict == "fits"}
        yield Planned((key, position), advice.planned, mine, others, advice.fits)


def _number(evidence: Evidence, expression: str) -> float:
    value = evidence.evaluate(expression).result
    return numeric(value) if isinstance(value, Value) else float("inf")
