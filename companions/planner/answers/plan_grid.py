"""Committed plans of one model: simulated strategies in a grid of states, as JSON. No torch.

Flow: `python -m runners plan check --write` simulates and writes
`content/planner/plans/<preset>.json`, and `read_grid` gives it back. `as_trace` shows a grid as a
trace with a run for each strategy in each state, so that lessons, claims and figures name its
values as they name any others: `plan_llama_8b.fsdp_on_8.ranks[0].memory.peak_bytes`.
"""

import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from proofbook.companions.planner.answers.architecture import model_presets
from proofbook.companions.planner.answers.device_memory import least_bytes, needed_bytes
from proofbook.runners.core.trace.measured import Collective, Memory, MemoryClasses, Timing
from proofbook.runners.core.trace.records import (
    Circumstances,
    Code,
    RankRecord,
    Run,
    Trace,
    trace_of,
)
from proofbook.runners.core.trace.schema import (
    Guarded,
    Moment,
    Record,
    Setting,
    Version,
    digest_of,
    now,
)
from proofbook.runners.simulate.log import RESHARDED, AxisCalls
from proofbook.runners.system.book import ROOT
from proofbook.runners.traces import digest
from proofbook.runners.traces.files import read_record

FOLDER = "planner/plans"  # of the content
PREFIX = "plan_"  # of the names by which expressions call grids
QUESTION = (
    "Which strategies fit this model on so many devices, and what does each rank hold and send?"
)
_ENTRY = "companions/planner/simulated/one_rank.py"
_SHORT = {"bf16-mixed": "", "adam": "", "none": "", "all": "checkpointed"}


class GridRank(Record):
    """One simulated rank; tensor bytes but for `allocated_bytes` and `reserved_bytes`."""

    rank: int
    peak_bytes: int
    peak_phase: str | None
    at_peak: MemoryClasses
    between_steps_bytes: int
    allocated_bytes: int  # the peak with each block rounded up to 512 bytes
    reserved_bytes: int  # what CUDA's caching allocator would hold
    num_parameters: int
    flops: int  # of one step
    sent_bytes: int  # at least, by the ring algorithms' closed forms
    calls: list[AxisCalls]

    def num_communicators(self, num_microbatches: int) -> int:
        """The number of its process groups: the axes that its calls name, and units that reshard.

        Where FSDP reshards to a smaller group, torch 2.13 builds a group for each unit, which
        gathers once in each microbatch (pytorch/pytorch, issue 153302).
        """
        own = sum(call.count for call in self.calls if call.axis == RESHARDED) // num_microbatches
        return len({call.axis for call in self.calls} - {RESHARDED}) + own


class GridState(Record):
    """The settings that a grid varies beside the strategy."""

    devices: int
    microbatch: int
    precision: str = "bf16-mixed"
    optimizer: str = "adam"
    sequence: int
    checkpointing: str = "none"


class GridRow(Record):
    """The simulation of a strategy in a state."""

    strategy: str
    state: GridState
    global_batch: int
    num_microbatches: int
    ranks: Annotated[list[GridRank], Field(min_length=1)]
    seconds: float  # that the simulation took


class Simulated(Guarded):
    """The head of a committed file of simulations: when and by which code it was made."""

    schema_version: Literal[1]
    made_at: Moment
    code: str  # the digest of the code that simulates, and of what it is given
    torch: Version
    python: Version

    def as_trace(self, experiment: str, question: str, runs: dict[str, Run]) -> Trace:
        """A trace of simulated runs, which no machine measured."""
        under = Circumstances(python=self.python, torch=self.torch)
        trace = trace_of(experiment, question, Code(digest=self.code), under, "", runs)
        return trace.model_copy(update={"recorded_at": self.made_at})


class Grid(Simulated):
    """Every simulated row of one preset."""

    preset: str
    title: str
    base_sequence: int  # the tokens of a sample that a run's name leaves out
    microbatch: int  # the samples of a microbatch that a run's name leaves out
    num_parameters: int
    architecture: dict[str, int | str | bool]
    rows: Annotated[list[GridRow], Field(min_length=1)]


def read_grid(path: Path) -> Grid:
    """Read the committed plans of one preset; errors as `read_record` has them."""
    return read_record(path, Grid)


def made_here(code: str) -> dict[str, Any]:
    """Fields of a simulated file's head, by name: the present time, `code`, torch, Python."""
    return {
        "schema_version": 1,
        "made_at": now(),
        "code": code,
        "torch": metadata.version("torch"),
        "python": platform.python_version(),
    }


def experiment_of(preset: str) -> str:
    """The name by which expressions call the grid of a preset."""
    return PREFIX + preset.replace("-", "_").replace(".", "_")


def run_name(strategy: str, state: GridState, sequence: int, microbatch: int) -> str:
    """The name of a row: its strategy, its devices, and the settings that are not the usual ones.

    Usual are bf16 with fp32 masters, Adam, no checkpointing, and the given sequence and microbatch.
    """
    own = strategy.replace("-", "_").replace("+", "_").replace(".", "_")
    words = [
        f"pp_{own}" if own[0].isdigit() else own,  # 1F1B: a name begins with a letter
        f"on_{state.devices}",
        _SHORT.get(state.precision, state.precision.replace("-", "_")),
        _SHORT.get(state.optimizer, state.optimizer),
        "" if state.sequence == sequence else f"sequence_{state.sequence}",
        "" if state.microbatch == microbatch else f"microbatch_{state.microbatch}",
        _SHORT.get(state.checkpointing, state.checkpointing),
    ]
    return "_".join(filter(None, words))


def as_trace(grid: Grid) -> Trace:
    """The grid as a trace: a simulated run for each row, in the order of the rows."""
    runs = {name: _run(row, grid) for name, row in named_rows(grid).items()}
    return grid.as_trace(experiment_of(grid.preset), QUESTION, runs)


def named_rows(grid: Grid) -> dict[str, GridRow]:
    """The rows of a grid by the names of their runs."""
    usual = grid.base_sequence, grid.microbatch
    return {run_name(row.strategy, row.state, *usual): row for row in grid.rows}


def run_of(
    strategy: str, settings: dict[str, Setting], ranks: list[RankRecord], seconds: float
) -> Run:
    """A `Run`, completed and simulated, of ranks' records; its device, seed, … are fixed."""
    return Run(
        strategy=strategy,
        world_size=1,
        backend="gloo",
        device="cpu",
        seed=0,
        settings=settings,
        expected_status="completed",
        status="completed",
        passes=["metered"],
        ranks=ranks,
        timing=Timing(wall_seconds=seconds),
        nature="simulated",
    )


def _run(row: GridRow, grid: Grid) -> Run:
    settings: dict[str, Setting] = {
        **grid.architecture,
        "strategy": row.strategy,
        "num_ranks": row.state.devices,
        **row.state.model_dump(exclude={"devices"}),
        "global_batch": row.global_batch,
        "num_microbatches": row.num_microbatches,
        "num_parameters": grid.num_parameters,
    }
    ranks = [_rank(rank, row.num_microbatches) for rank in row.ranks]
    return run_of(row.strategy, settings, ranks, row.seconds)


def _rank(rank: GridRank, num_microbatches: int) -> RankRecord:
    num_groups = rank.num_communicators(num_microbatches)
    return RankRecord(
        rank=rank.rank,
        status="completed",
        num_parameters=rank.num_parameters,
        memory=Memory(
            peak_bytes=rank.peak_bytes,
            peak_phase=rank.peak_phase,
            at_peak=rank.at_peak,
            phases={"held": rank.between_steps_bytes},
        ),
        collectives=[
            Collective(operation=f"{c.operation}_over_{c.axis}", count=c.count, bytes=c.bytes)
            for c in rank.calls
        ],
        measures={
            **rank.model_dump(include={"reserved_bytes", "allocated_bytes", "flops", "sent_bytes"}),
            "needed_bytes": needed_bytes(rank.reserved_bytes, num_groups),
            "least_bytes": least_bytes(rank.allocated_bytes),
        },
    )


def code_digest(experiment: str) -> str:
    """The digest of a grid: of the code that simulates, and of the architecture."""
    shapes = {experiment_of(name): preset.architecture for name, preset in model_presets().items()}
    shape = shapes.get(experiment)
    return digest_of([engine_digest(), shape and shape.as_json()])


@cache
def engine_digest() -> str:
    """The digest of the code that simulates: comments, docstrings and layout left out."""
    return digest.code_digest(ROOT / _ENTRY)
