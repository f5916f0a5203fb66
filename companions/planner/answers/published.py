"""Published numbers beside what is computed of them: committed traces, `planner/<name>.json`.

Flow: `python -m runners plan check --write` simulates the measurements of memory that others
published (`plan_published`), computes what the rule of order tries first of published layouts, and
compares published steps with their bounds (`plan_order`). Each is a trace
with a run for each row, cluster or search, which pages read alone. A run's settings are the row's
configuration, the published numbers, and where they stand; its measures are what was computed:
`plan_published.RUN.ranks[0].measures.reserved_bytes`. No torch.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from proofbook.companions.planner.answers import plan_grid
from proofbook.companions.planner.answers.plan_grid import PREFIX, Simulated, made_here
from proofbook.runners.core.trace.records import RankRecord, Run, Trace
from proofbook.runners.core.trace.schema import Setting, digest_of
from proofbook.runners.system.book import ROOT
from proofbook.runners.traces.digest import code_digest

PLANNER = ROOT / "content" / "planner"
KINDS = ("allocated", "active", "reserved")  # of memory, as a device's allocator counts it
MOST_ERROR = 0.10  # a simulated peak that is further off says why


class PublishedComparison(NamedTuple):
    """A committed trace of values that are computed for published lists."""

    experiment: str  # the name by which expressions call it
    question: str
    lists: tuple[str, ...]  # files of the planner with the published rows
    code: str  # the file of `companions/planner` that computes, with what it imports
    simulates: bool = False  # whether ranks are simulated for it

    @property
    def path(self) -> Path:
        """The file of the committed comparison."""
        return PLANNER / f"{self.experiment}.json"

    def runs(self, names: Sequence[str] = ()) -> dict[str, Run]:
        """The runs, computed now; of a simulation those of these names alone, which must exist."""
        module = import_module(f"proofbook.companions.planner.{self.code.replace('/', '.')}")
        runs: dict[str, Run] = module.runs(names) if self.simulates else module.runs()
        return runs

    def trace(self, runs: dict[str, Run]) -> Trace:
        """The trace of runs that were computed now."""
        made = Simulated(**made_here(self.digest))
        return made.as_trace(self.experiment, self.question, runs)

    @property
    def digest(self) -> str:
        """The digest of the lists and of the code that computes."""
        lists = [(PLANNER / name).read_text(encoding="utf-8") for name in self.lists]
        return digest_of([*lists, code_digest(ROOT / "companions" / "planner" / f"{self.code}.py")])


PEAKS = PublishedComparison(
    f"{PREFIX}published",
    "How far are simulated peaks from published ones?",
    lists=("published_measurements.yml", "published_simumax.csv"),
    code="simulated/published_peaks",
    simulates=True,
)
ORDER = PublishedComparison(
    f"{PREFIX}order",
    "How much slower than the fastest is the rule's first layout, and is no step below its bound?",
    lists=("published_rates.yml", "published_layouts.csv", "published_megatron_bridge.csv"),
    code="answers/published_order",
)
COMPARISONS = {one.experiment: one for one in (ORDER, PEAKS)}


def run(settings: dict[str, Setting], measures: dict[str, Setting], seconds: float = 0.0) -> Run:
    """The run of a row: published values as settings, computed ones as measures."""
    rank = RankRecord(rank=0, status="completed", measures=measures)
    return plan_grid.run_of("published", settings, [rank], seconds)


def published_bytes_of(row: Run) -> Iterator[tuple[str, float]]:
    """The peaks of memory that were published of a row, by their kind."""
    for kind in KINDS:
        size = row.settings.get(f"published_{kind}_bytes")
        if isinstance(size, float):
            yield kind, size


def run_name(words: str) -> str:
    """The name of a row's run."""
    return words.lower().replace("-", "_").replace(".", "_").replace(" ", "_")


def reference_of(name: str, kind: str) -> str:
    """The name by which expressions cite a published peak of a kind."""
    return f"published-{name}-{kind}".replace("_", "-")


def is_stale(trace: Trace) -> bool | None:
    """Whether the code of plans has changed since; None of what a machine measured."""
    if not trace.experiment.startswith(PREFIX):
        return None
    known, name = COMPARISONS.get(trace.experiment), trace.experiment
    return trace.code.digest != (known.digest if known else plan_grid.code_digest(name))
