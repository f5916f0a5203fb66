"""Join the rank outcomes of a run's passes into one `Run`. Pure; no torch."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from proofbook.runners.core.declared.experiment import Declaration, PassName
from proofbook.runners.core.declared.settings import NUM_SETTLING_STEPS
from proofbook.runners.core.measuring.launch import ALLOCATORS, PassResult, Place
from proofbook.runners.core.meters.spans import split_waiting
from proofbook.runners.core.trace.measured import SampledSeconds, Timing
from proofbook.runners.core.trace.outcome import EpochPart, RankOutcome
from proofbook.runners.core.trace.records import (
    Epoch,
    Failure,
    Held,
    Move,
    RankEpoch,
    RankRecord,
    Run,
    Stage,
)
from proofbook.runners.core.trace.schema import Status

Known = TypeVar("Known")
MAX_SAMPLES = 200  # raw samples kept: enough for any quantile, small enough for a trace


def gather(
    declaration: Declaration,
    results: dict[PassName, PassResult],
    place: Place,
    *,
    oversubscribed: bool,
) -> Run:
    """A `Run` from results of passes: losses and times of the timed, memory of the metered pass.

    The last may have failed. `oversubscribed`: there are more ranks than cores, or accelerators.
    """
    error = next((r.root_cause for r in results.values() if r.root_cause is not None), None)
    result = results.get("timed") or results.get("budgeted") or results["metered"]
    main, metered = result.outcomes, results["metered"].outcomes if "metered" in results else []
    settled = main[0].step_seconds[NUM_SETTLING_STEPS:] if "timed" in results else []
    measured = _first_of(o.measured_seconds for o in (*main, *metered))
    return Run(
        **_declared(declaration, place),
        status=_status(results, error),
        error=error,
        passes=list(results),
        allocator={
            name: " ".join(f"{k}={v}" for k, v in ALLOCATORS[name].items()) or "default"
            for name in results
        },
        model=next((o.model for r in results.values() for o in r.outcomes if o.model), None),
        stages=_stages(main, metered, declaration.has_timeline),
        epochs=_epochs(main),
        step_losses=next((o.step_losses for o in main if o.step_losses), []),
        validation=next((o.validation for o in main if o.validation), None),
        prediction=list(_first_of({p.name: p for p in o.prediction} for o in main).values()),
        ranks=_ranks(main, metered),
        quantities=_first_of(o.quantities for o in (*main, *metered)),
        printed=result.printed,
        non_finite=[n for o in main for n in o.non_finite],
        timing=Timing(
            wall_seconds=round(sum(r.seconds for r in results.values()), 3),
            oversubscribed=oversubscribed,
            step=_sampled(settled),
            stages=_first_of(o.stage_seconds for o in main),
            prediction=_first_of(o.prediction_seconds for o in main),
            measures={name: s for name, times in measured.items() if (s := _sampled(times))},
            **_timeline(metered),
        ),
    )


def skipped(declaration: Declaration, reason: str, place: Place) -> Run:
    """The record of a run that this machine cannot do, with the reason."""
    timing = Timing(wall_seconds=0.0)
    return Run(**_declared(declaration, place), status="skipped", reason=reason, timing=timing)


def _declared(declaration: Declaration, place: Place) -> dict[str, Any]:
    """The fields of a run's record that its declaration and its place say."""
    alike = ("strategy", "world_size", "seed", "budget_bytes", "nature", "expected_death", "label")
    return {
        **{name: getattr(declaration, name) for name in alike},
        **place._asdict(),
        "settings": declaration.settings.as_json(),
        "expected_status": declaration.expected,
    }


def _status(results: dict[PassName, PassResult], error: Failure | None) -> Status:
    outcomes = [o for r in results.values() for o in r.outcomes]
    if error is not None:
        return next(o.status for o in outcomes if o.failure and o.failure.kind == error.kind)
    return "diverged" if any(o.non_finite for o in outcomes) else "completed"


def _first_of(by_rank: Iterable[Mapping[str, Known]]) -> dict[str, Known]:
    """Merge mappings by rank; of equal names, the lowest rank's value is kept."""
    kept: dict[str, Known] = {}
    for names in by_rank:
        for name, value in names.items():
            kept.setdefault(name, value)
    return kept


def _stages(main: list[RankOutcome], metered: list[RankOutcome], has_timeline: bool) -> list[Stage]:
    """Every stage as its first rank recorded it; with a timeline, also the tensors of all ranks."""
    stages = list(_first_of({s.name: s for s in o.stages} for o in main).values())
    if not has_timeline:
        return stages
    return [
        stage.model_copy(update={"ranks": _held(stage, main), "moves": _moves(stage.name, metered)})
        for stage in stages
    ]


def _held(stage: Stage, outcomes: list[RankOutcome]) -> list[Held]:
    if stage.rank is None:
        return []
    return [
        Held(rank=o.rank, shape_in=own.shape_in, shape_out=own.shape_out, bytes=own.bytes)
        for o in outcomes
        for own in o.stages
        if own.name == stage.name
    ]


def _moves(name: str, metered: list[RankOutcome]) -> list[Move]:
    """The communication in a stage: calls of one operation between the same ranks, summed."""
    moved: Counter[tuple[str, int | None, int | None]] = Counter()
    for outcome in metered:
        sums: Counter[tuple[str, int | None, int | None]] = Counter()
        for part in outcome.stage_moves.get(name, []):
            if part.operation != "send":  # the rank that receives it has recorded it
                operation = "send" if part.operation == "recv" else part.operation
                sums[operation, part.source, part.destination] += part.bytes
        moved |= sums  # of what several ranks recorded, the largest
    return [
        Move(operation=operation, source=source, destination=destination, bytes=num_bytes)
        for (operation, source, destination), num_bytes in moved.items()
    ]


def _epochs(outcomes: list[RankOutcome]) -> list[Epoch]:
    parts: defaultdict[int, dict[int, EpochPart]] = defaultdict(dict)
    for outcome in outcomes:
        for part in outcome.epochs:
            parts[part.epoch][outcome.rank] = part
    return [_epoch(number, parts[number]) for number in sorted(parts)]


def _epoch(number: int, parts: dict[int, EpochPart]) -> Epoch:
    def mean(name: str) -> float | None:
        """Over the ranks that know it, weighted by their samples."""
        known = [p for p in parts.values() if getattr(p, name) is not None]
        weight = sum(p.num_samples for p in known)
        return sum(getattr(p, name) * p.num_samples for p in known) / weight if weight else None

    def first(name: str) -> float | None:
        return next((v for p in parts.values() if (v := getattr(p, name)) is not None), None)

    return Epoch(
        epoch=number,
        loss=mean("loss"),
        accuracy=mean("accuracy"),
        validation_loss=first("validation_loss"),
        validation_accuracy=first("validation_accuracy"),
        ranks=[
            RankEpoch(rank=rank, loss=part.loss, parameter_digest=part.parameter_digest)
            for rank, part in parts.items()
            if part.parameter_digest is not None
        ],
    )


def _ranks(main: list[RankOutcome], metered: list[RankOutcome]) -> list[RankRecord]:
    """Results from the training pass, memory and collectives from the metered one."""
    meters = {outcome.rank: outcome for outcome in metered}
    records = []
    for outcome in main:
        meter = meters.get(outcome.rank, outcome)
        fields = {name: getattr(outcome, name) for name in RankRecord.model_fields}
        fields["memory"] = meter.memory or outcome.memory
        fields["collectives"] = meter.collectives
        fields["measures"] = {**meter.measures, **outcome.measures}
        records.append(RankRecord(**fields))
    return records


def _sampled(seconds: list[float]) -> SampledSeconds | None:
    """At most as many samples as a trace keeps, taken evenly; None where there are none."""
    every = -(-len(seconds) // MAX_SAMPLES)
    return SampledSeconds.of(seconds[::every]) if seconds else None


def _timeline(outcomes: list[RankOutcome]) -> dict[str, Any]:
    """The spans of all ranks, and how each spent its step."""
    windows = {o.rank: o.window_ns for o in outcomes if o.window_ns is not None}
    if not windows or len(windows) < len(outcomes):
        return {}
    spans, rank_times = split_waiting([event for o in outcomes for event in o.events], windows)
    return {"timeline": spans, "ranks": rank_times}
