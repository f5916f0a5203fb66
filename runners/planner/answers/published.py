"""Published numbers beside what is computed of them: committed traces, `planner/<name>.json`.

Flow: `python -m runners plan check --write` simulates the measurements of memory that others
published (`plan_published`), applies the law of time to published steps (`plan_steps`), and fits
the estimate of a step to published layouts (`plan_layouts`). Each is a trace with a run for each
row, which pages read alone. A run's settings are the row's configuration, the published numbers,
and where they stand; its measures are what was computed:
`plan_published.RUN.ranks[0].measures.reserved_bytes`. No torch.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from runners.planner.answers import plan_grid
from runners.planner.answers.plan_grid import PREFIX, Simulated, made_here
from runners.traces import files
from runners.traces.digest import ROOT, code_digest
from runners.traces.records import RankRecord, Run, Trace
from runners.traces.schema import Setting, digest_of

PLANNER = ROOT / "content" / "planner"
KINDS = ("allocated", "active", "reserved")  # of memory, as a device's allocator counts it
MOST_ERROR = 0.10  # a simulated peak that is further off says why


class Comparison(NamedTuple):
    """What is computed of some published lists.

    Attributes:
        experiment: the name by which expressions call it.
        lists: files of the planner with the published rows.
        code: the file of `runners/planner` that computes, with what it imports.
        simulates: whether ranks are simulated for it.
    """

    experiment: str
    question: str
    lists: tuple[str, ...]
    code: str
    simulates: bool = False

    @property
    def path(self) -> Path:
        """The file of the committed comparison."""
        return PLANNER / f"{self.experiment}.json"

    def trace(self, runs: dict[str, Run]) -> Trace:
        """The trace of runs that were computed now."""
        made = Simulated(**made_here(self.digest))
        return plan_grid.trace_of(self.experiment, self.question, made, runs)

    @property
    def digest(self) -> str:
        """The digest of the lists and of the code that computes."""
        lists = [(PLANNER / name).read_text(encoding="utf-8") for name in self.lists]
        return digest_of([*lists, code_digest(ROOT / "runners" / "planner" / f"{self.code}.py")])


PEAKS = Comparison(
    f"{PREFIX}published",
    "How far are simulated peaks from published ones?",
    lists=("published_measurements.yml",),
    code="simulated/published_peaks",
    simulates=True,
)
STEPS = Comparison(
    f"{PREFIX}steps",
    "How far does one efficiency for each device explain published rates of training steps?",
    lists=("published_steps.yml", "published_choices.yml"),
    code="answers/published_steps",
)
LAYOUTS = Comparison(
    f"{PREFIX}layouts",
    "How much slower than the fastest is the layout that the estimate prefers?",
    lists=("published_layouts.yml", "published_layouts.csv"),
    code="answers/published_layouts",
)
COMPARISONS = {one.experiment: one for one in (LAYOUTS, PEAKS, STEPS)}


def run(settings: dict[str, Setting], measures: dict[str, Setting], seconds: float = 0.0) -> Run:
    """The run of a row: what was published, and what was computed in so many seconds."""
    rank = RankRecord(rank=0, status="completed", measures=measures)
    return plan_grid.run_of("published", settings, [rank], seconds)


def published_bytes_of(row: Run) -> Iterator[tuple[str, float]]:
    """The peaks of memory that were published of a row, by their kind."""
    for kind in KINDS:
        found = row.settings.get(f"published_{kind}_bytes")
        if isinstance(found, float):
            yield kind, found


def lines(runs: Mapping[str, Run]) -> list[str]:
    """A line a run: what was published of it, and what was computed."""
    said = []
    for name, one in runs.items():
        published = {k: v for k, v in one.settings.items() if k.startswith("published_")}
        values = {**published, **one.ranks[0].measures}
        said.append(f"{name:<44}{', '.join(f'{k} {v:.4g}' for k, v in values.items())}")
    return said


def run_name(words: str) -> str:
    """The name of a row's run."""
    return words.lower().replace("-", "_").replace(".", "_").replace(" ", "_")


def reference_of(name: str, kind: str | None = None) -> str:
    """The name by which expressions cite a published number: a peak of a kind, or a rate."""
    words = ("published", name, kind) if kind else ("step", name)
    return "-".join(words).replace("_", "-")


def is_stale(trace: Trace) -> bool:
    """Whether what a trace, measured or simulated, follows from has changed since."""
    if not trace.experiment.startswith(PREFIX):
        return files.is_stale(trace)
    known, name = COMPARISONS.get(trace.experiment), trace.experiment
    return trace.code.digest != (known.digest if known else plan_grid.code_digest(name))
