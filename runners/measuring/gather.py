"""Put what the ranks of a run's passes recorded together into one `Run`. Pure; no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

from runners.measuring.launch import ALLOCATORS, PassResult
from runners.meters.spans import Event, on_one_clock, split_waiting
from runners.plans.experiment import PassName, RunPlan
from runners.traces.measured import RankClock, RankTime, SampledSeconds, Span, Timing
from runners.traces.outcome import EpochPart, RankOutcome
from runners.traces.records import (
    Epoch,
    Failure,
    Held,
    Move,
    PredictionStep,
    RankEpoch,
    RankRecord,
    Run,
    Stage,
    Validation,
)
from runners.traces.schema import Status

NUM_SETTLING_STEPS = 3  # the first steps of a timed pass build buckets and fill caches
MAX_SAMPLES = 200  # raw samples kept: enough for any quantile, small enough for a trace


def gather(
    plan: RunPlan,
    results: dict[PassName, PassResult],
    *,
    backend: str,
    device: str,
    num_places: int,
) -> Run:
    """One run from its passes.

    Args:
        plan: the run as declared.
        results: each pass that ran; the pass that failed, if one did, is the last.
        backend: gloo or nccl.
        device: cpu or cuda.
        num_places: cores, or accelerators on cuda; more ranks than that are oversubscribed.
    """
    error = next((r.root_cause for r in results.values() if r.root_cause is not None), None)
    main = results.get("timed") or results.get("budgeted") or results["metered"]
    metered = results.get("metered")
    epochs = _epochs(main.outcomes)
    spans, rank_times, clocks = _timeline(metered.outcomes if metered else [])
    first = main.outcomes[0]
    return Run(
        **_declared(plan, backend, device),
        status=_status(results, error),
        reason=None,
        error=error,
        passes=list(results),
        allocator={name: _environment(name) for name in results},
        model=next((o.model for r in results.values() for o in r.outcomes if o.model), None),
        stages=_stages(main.outcomes, metered.outcomes if metered else [], plan.has_timeline),
        epochs=epochs,
        step_losses=next((o.step_losses for o in main.outcomes if o.step_losses), []),
        validation=_validation(main.outcomes),
        prediction=_once(o.prediction for o in main.outcomes),
        ranks=_ranks(main.outcomes, metered.outcomes if metered else []),
        printed=main.printed,
        non_finite=[n for o in main.outcomes for n in o.non_finite],
        timing=Timing(
            wall_seconds=round(sum(r.seconds for r in results.values()), 3),
            oversubscribed=plan.world_size > num_places,
            step=_samples(first.step_seconds) if "timed" in results else None,
            stages=_first_seconds([o.stage_seconds for o in main.outcomes]),
            prediction=_first_seconds([o.prediction_seconds for o in main.outcomes]),
            timeline=spans,
            ranks=rank_times,
            clocks=clocks,
            measures=_measured_times([*main.outcomes, *(metered.outcomes if metered else [])]),
        ),
    )


def skipped(plan: RunPlan, reason: str, *, backend: str, device: str) -> Run:
    """A run that this machine cannot do, with why."""
    return Run(
        **_declared(plan, backend, device),
        status="skipped",
        reason=reason,
        error=None,
        passes=[],
        allocator={},
        model=None,
        stages=[],
        epochs=[],
        step_losses=[],
        validation=None,
        prediction=[],
        ranks=[],
        printed=[],
        non_finite=[],
        timing=Timing(
            wall_seconds=0.0,
            oversubscribed=False,
            step=None,
            stages={},
            prediction={},
            timeline=[],
            ranks=[],
        ),
    )


def _declared(plan: RunPlan, backend: str, device: str) -> dict[str, Any]:
    """What stands of a run before anything of it has run."""
    return {
        "strategy": plan.strategy,
        "world_size": plan.world_size,
        "backend": backend,
        "device": device,
        "seed": plan.seed,
        "settings": plan.settings.as_json(),
        "budget_bytes": plan.budget_bytes,
        "expected_status": plan.expected,
        "nature": plan.nature,
        "expected_death": plan.expected_death,
        "label": plan.label,
    }


def _environment(name: PassName) -> str:
    return " ".join(f"{k}={v}" for k, v in ALLOCATORS[name].items()) or "default"


def _status(results: dict[PassName, PassResult], error: Failure | None) -> Status:
    outcomes = [o for r in results.values() for o in r.outcomes]
    if error is not None:
        return next(o.status for o in outcomes if o.failure and o.failure.kind == error.kind)
    return "diverged" if any(o.non_finite for o in outcomes) else "completed"


Named = TypeVar("Named", Stage, PredictionStep)


def _once(by_rank: Iterable[list[Named]]) -> list[Named]:
    """Every name once: what several ranks recorded stands as the first of them saw it."""
    kept: dict[str, Named] = {}
    for one in (one for ranks in by_rank for one in ranks):
        kept.setdefault(one.name, one)
    return list(kept.values())


def _stages(main: list[RankOutcome], metered: list[RankOutcome], is_shown: bool) -> list[Stage]:
    """Every stage as its first rank saw it; in a run that is shown, what each rank held, too."""
    stages = _once(o.stages for o in main)
    if not is_shown:
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
    """What travelled in a stage: calls of one operation between the same ranks, summed."""
    found: dict[tuple[str, int | None, int | None], int] = {}
    for outcome in metered:
        sums: Counter[tuple[str, int | None, int | None]] = Counter()
        for part in outcome.stage_moves.get(name, []):
            if part.operation != "send":  # the rank that receives it has recorded it
                operation = "send" if part.operation == "recv" else part.operation
                sums[operation, part.source, part.destination] += part.bytes
        for ends, num_bytes in sums.items():
            found[ends] = max(found.get(ends, 0), num_bytes)
    return [
        Move(operation=operation, source=source, destination=destination, bytes=num_bytes)
        for (operation, source, destination), num_bytes in found.items()
    ]


def _first_seconds(by_rank: list[dict[str, float]]) -> dict[str, float]:
    """The time of each stage on the rank whose tensors are shown."""
    return {name: s for seconds in reversed(by_rank) for name, s in seconds.items()}


def _measured_times(outcomes: list[RankOutcome]) -> dict[str, SampledSeconds]:
    """The times that an experiment took itself, each as the first rank that knows it took them."""
    kept: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, seconds in outcome.measured_seconds.items():
            kept.setdefault(name, seconds)
    return {name: SampledSeconds.of(_thinned(seconds)) for name, seconds in kept.items() if seconds}


def _mean(parts: list[EpochPart], name: str) -> float | None:
    """The mean of a field over the ranks that know it, weighted by their samples."""
    known = [(getattr(p, name), p.num_samples) for p in parts if getattr(p, name) is not None]
    weight = sum(n for _, n in known)
    if not known or weight == 0:
        return None
    return float(sum(value * n for value, n in known) / weight)


def _epochs(outcomes: list[RankOutcome]) -> list[Epoch]:
    numbers = sorted({e.epoch for o in outcomes for e in o.epochs})
    epochs = []
    for number in numbers:
        seen = [(o.rank, e) for o in outcomes for e in o.epochs if e.epoch == number]
        parts = [e for _, e in seen]
        epochs.append(
            Epoch(
                epoch=number,
                loss=_mean(parts, "loss"),
                accuracy=_mean(parts, "accuracy"),
                validation_loss=_first(parts, "validation_loss"),
                validation_accuracy=_first(parts, "validation_accuracy"),
                ranks=[
                    RankEpoch(rank=rank, loss=e.loss, parameter_digest=e.parameter_digest)
                    for rank, e in seen
                    if e.parameter_digest is not None
                ],
            )
        )
    return epochs


def _first(parts: list[EpochPart], name: str) -> float | None:
    return next((v for p in parts if (v := getattr(p, name)) is not None), None)


def _validation(outcomes: list[RankOutcome]) -> Validation | None:
    for outcome in outcomes:
        if outcome.validation is not None:
            return Validation(rank=outcome.rank, **outcome.validation.model_dump())
    return None


def _ranks(main: list[RankOutcome], metered: list[RankOutcome]) -> list[RankRecord]:
    """Results from the training pass, memory and collectives from the metered one."""
    records = []
    for outcome in main:
        meter = next((m for m in metered if m.rank == outcome.rank), outcome)
        records.append(
            RankRecord(
                rank=outcome.rank,
                status=outcome.status,
                failure=outcome.failure,
                num_parameters=outcome.num_parameters,
                num_samples=outcome.num_samples,
                first_parameter_digest=outcome.first_parameter_digest,
                start_parameter_digest=outcome.start_parameter_digest,
                parameter_digest=outcome.parameter_digest,
                memory=meter.memory or outcome.memory,
                collectives=meter.collectives,
                measures={**meter.measures, **outcome.measures},
            )
        )
    return records


def _samples(seconds: list[float]) -> SampledSeconds | None:
    """The step times once settled; a long run's are thinned evenly to what a trace can hold."""
    settled = seconds[NUM_SETTLING_STEPS:]
    if not settled:
        return None
    return SampledSeconds.of(_thinned(settled))


def _thinned(seconds: list[float]) -> list[float]:
    """At most as many samples as a trace keeps, taken evenly."""
    return seconds[:: -(-len(seconds) // MAX_SAMPLES)]


def _timeline(
    outcomes: list[RankOutcome],
) -> tuple[list[Span], list[RankTime], list[RankClock]]:
    """The spans of all ranks, how each spent its step, and how far their clocks are apart."""
    windows = {o.rank: o.window_ns for o in outcomes if o.window_ns is not None}
    if not windows or len(windows) < len(outcomes):
        return [], [], []
    events = [
        Event(o.rank, e.kind, e.name, e.start_ns, e.end_ns, e.peer)
        for o in outcomes
        for e in o.events
    ]
    clocks = [clock for o in outcomes for clock in o.clocks]
    return *split_waiting(*on_one_clock(events, windows, clocks)), clocks
