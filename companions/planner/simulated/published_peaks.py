"""Published peaks of memory beside their simulations and closed forms.

In: the rows of `published_measurements.yml`. Out: for each a run with measured and simulated bytes,
and those of closed forms, misses included. What neither can know is a named term: the workspaces of
libraries on Megatron's ranks (`workspace_bytes`). A row that misses because of what a plan leaves
out is simulated once more with it (`terms`). `margin` counts the rows to which the margin of closed
forms was fitted, and those that were held out, which are within it.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from proofbook.companions.planner.answers import closed_form, published_rows
from proofbook.companions.planner.answers.answer import GIB, PlanAnswer
from proofbook.companions.planner.answers.device_memory import FITTED, FORM_ERROR
from proofbook.companions.planner.answers.published import MOST_ERROR, PLANNER, run, run_name
from proofbook.companions.planner.answers.published_rows import (
    MEASUREMENTS,
    Measurement,
    PublishedRow,
)
from proofbook.companions.planner.answers.question import PlanError, Question
from proofbook.companions.planner.simulated.cache import answers
from proofbook.runners.core.trace.machine import num_cores
from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.schema import Setting


@cache
def terms() -> dict[str, dict[str, Any]]:
    """By row id, the term that its simulation leaves out, as the file of measurements states it.

    All were found after the first comparison. `implementation` has the fields that add it, where a
    plan can.
    """
    terms = published_rows.read(MEASUREMENTS)["terms"]
    return {row: term for term in terms for row in term["rows"]}


@cache
def rows_by_run() -> dict[str, PublishedRow]:
    """The rows by the names of their runs, but those whose strategy no plan can ask for."""
    by_run = {}
    for row in published_rows.rows(MEASUREMENTS):
        with suppress(PlanError):
            row.question.check_simulation()
            by_run[run_name(row.id)] = row
    return by_run


def workspace_bytes(row: PublishedRow) -> int:
    """Bytes of cuBLAS's and Transformer Engine's workspaces on a rank; 0 under torchtitan.

    A workspace for each of torch's two handles of cuBLAS, that of the main thread and that of
    autograd's (aten/src/ATen/cuda/CublasHandlePool.cpp of pytorch/pytorch at 26a39059: 32 MiB
    on Hopper and by CUBLAS_WORKSPACE_CONFIG :4096:8, else 8.125), and 32 MiB of Transformer
    Engine (`get_cublas_workspace_size_bytes`). What the rows hold between steps exceeds their
    state by so much, and at most 20 MiB more (tests/runners/test_published.py).
    """
    if row.framework == "torchtitan":
        return 0
    settings = {"cublas-workspace", "deterministic"} & {*row.details}
    return round((2 * (32 if "H100" in row.device.name or settings else 8.125) + 32) * 2**20)


def _questions(row: PublishedRow) -> Iterator[Question]:
    """The question of the row; then with its term, where a plan can add that."""
    yield row.question
    if added := terms().get(row.id, {}).get("implementation"):
        yield row.model_copy(update=added).question


def runs(names: Sequence[str] = ()) -> dict[str, Run]:
    """Runs by name, with published and simulated peaks, of all published rows, or those named."""
    known = rows_by_run()
    if gone := [name for name in names if name not in known]:
        raise PlanError(f"no published row is called {gone[0]!r} any more")
    chosen = {name: known[name] for name in names or known}
    asked = [(name, question) for name, row in chosen.items() for question in _questions(row)]
    simulated = answers([question for _, question in asked], num_cores())
    answers_by_name: defaultdict[str, list[PlanAnswer]] = defaultdict(list)
    for (name, _), answer in zip(asked, simulated, strict=True):
        if answer.reason is not None:
            raise PlanError(f"{name}: {answer.reason}")
        answers_by_name[name].append(answer)
    places = {name: place for place, name in enumerate(known)}
    by_name = {
        name: _run(row, places[name], *answers_by_name[name]) for name, row in chosen.items()
    }
    return by_name if names else by_name | {"margin": _margin()}


def _run(
    row: PublishedRow, place: int, answer: PlanAnswer, second: PlanAnswer | None = None
) -> Run:
    axes = {"sharding", "data", "tensor", "pipeline", "context", "expert"}
    settings: dict[str, Setting] = {
        "place": place,
        **row.model_dump(include={"id", "case", "model", "sequence", "microbatch", "global_batch"}),
        **row.strategy.model_dump(include=axes),
        **row.source.model_dump(include={"where", "url"}),
        "checkpointing": row.checkpointing,
        "repository": row.source.title,
        "num_ranks": row.devices,
        "device": row.device.name,
    }
    measures: dict[str, Setting] = {"workspace_bytes": workspace_bytes(row)}
    for peak in row.measured:
        if peak.moment == "peak":
            settings[f"published_{peak.kind}_bytes"] = peak.bytes
            settings[f"field_{peak.kind}"] = peak.field
            measures[f"{peak.kind}_bytes"] = simulated = _peak(row, answer, peak)
            formed = _peak(row, closed_form.answer(row.question), peak)
            measures[f"formed_{peak.kind}_bytes"] = formed
            if abs(simulated / peak.bytes - 1) > MOST_ERROR:
                term = terms().get(row.id, {"says": "Not explained."})
                settings[f"explained_{peak.kind}"] = term["says"]
                if second is not None:
                    measures[f"with_term_{peak.kind}_bytes"] = _peak(row, second, peak)
    return run(settings, measures, answer.seconds)


def _peak(row: PublishedRow, answer: PlanAnswer, measured: Measurement) -> int:
    rank = answer.ranks[-1] if measured.rank == "last" else answer.busiest
    assert rank is not None
    is_reserved = measured.kind == "reserved"  # no other stream uses a block after it was freed
    return workspace_bytes(row) + (rank.reserved_bytes if is_reserved else rank.allocated_bytes)


class FormError(NamedTuple):
    """How far a row of published_simumax.csv is from closed forms."""

    case: str  # in which its memory was measured, for several rows at once
    share: float  # measured reserved bytes over those of closed forms, less 1


def form_errors() -> dict[str, FormError]:
    """By row of published_simumax.csv, if its peak was measured."""
    by_case = {row.case: row for row in published_rows.rows(MEASUREMENTS)}
    with (PLANNER / "published_simumax.csv").open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["measured_peak_reserved_gib"]]
    errors = {}
    for line in lines:
        case = line["memory_measured_in_case"] or line["case_name"]
        row = by_case[case]
        measured = next(peak for peak in row.measured if peak.kind == "reserved")
        formed = _peak(row, closed_form.answer(row.question), measured)
        share = float(line["measured_peak_reserved_gib"]) * GIB / formed - 1
        errors[line["row_id"]] = FormError(case, share)
    return errors


def _margin() -> Run:
    errors, known = form_errors(), {form_errors()[row].case for row in FITTED}
    measures: dict[str, Setting] = {"margin": FORM_ERROR}
    for part, is_fitted in (("fitted", True), ("held_out", False)):
        of = [error for row, error in errors.items() if (row in FITTED) == is_fitted]
        shares = [error.share for error in of]
        within = sum(abs(share) <= FORM_ERROR for share in shares)
        measures |= {f"num_{part}": len(of), f"num_{part}_within": within}
        measures |= {f"lowest_{part}": min(shares), f"highest_{part}": max(shares)}
    new = {error.case for error in errors.values()} - known
    return run(
        {"fitted": [*FITTED]}, measures | {"num_cases": len(known), "num_new_cases": len(new)}
    )
