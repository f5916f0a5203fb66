"""`python -m runners predict`: what this machine will need for every run, said before it runs.

In: the primitives, measured now (`primitives.py`), and the work of every run, as its simulation
shows it (`work.py`). Out: `prediction.json` in the machine's folder. Nothing here reads a trace: a
forecast that knew the outcome would be none. One that was made after its run shows it: the trace's
`recorded_at` is then the older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from runners.forecast.fit import known_fit
from runners.forecast.model import BY_HAND, best, forecast_run
from runners.forecast.primitive_sizes import needed
from runners.forecast.work import Work, failures, works
from runners.measuring.launch import Launcher
from runners.measuring.progress import Progress
from runners.plans.experiment import PRIMITIVES, Experiment, RunPlan, find, names, on_device
from runners.traces import machine
from runners.traces.files import read_prediction, write_prediction
from runners.traces.fit import Constants, Fit
from runners.traces.measured import SampledSeconds
from runners.traces.prediction import ChoiceForecast, Prediction, RunForecast


class PrimitiveError(RuntimeError):
    """A primitive could not be measured here."""


def measured_primitives(
    launcher: Launcher, progress: Progress
) -> dict[str, SampledSeconds | float]:
    """Measure what the forecasts rest on; about half a minute.

    Raises:
        LaunchError: ranks could not be started.
        PrimitiveError: ranks failed; the message is theirs.
    """
    experiment = find(PRIMITIVES)
    places = machine.num_places(launcher.device)
    taken: dict[str, SampledSeconds | float] = {}
    progress.begin(experiment)
    for name, plan in experiment.runs.items():
        if _is_left_out(plan, launcher.device, places):
            continue
        result = launcher.run_pass(experiment, name, "timed", progress.watcher(name, "timed"))
        if result.root_cause is not None:
            why = result.not_measured or result.root_cause.message
            raise PrimitiveError(f"{name}: {why}")
        seconds = result.outcomes[0].measured_seconds
        taken |= {known: SampledSeconds.of(samples) for known, samples in seconds.items()}
        progress.said(f"{name}: {len(seconds)} primitives in {result.seconds:.1f} s")
    return taken | summary(taken)


def _is_left_out(plan: RunPlan, device: str, places: int) -> bool:
    """Whether a primitive means nothing here.

    What does not fit side by side is measured as a crowd, since it takes turns; ranks that share an
    accelerator lack most collectives.
    """
    fits = plan.world_size <= places
    if device == "cuda" and not fits:
        return True
    return plan.strategy == ("crowd" if fits else "compute")


def summary(taken: Mapping[str, SampledSeconds | float]) -> dict[str, SampledSeconds | float]:
    """The few rates that a person asks for, from the primitives: of one rank, of two, of four."""
    told: dict[str, SampledSeconds | float] = {}
    layer, memory = (
        taken.get("matrix_512x256_1_seconds"),
        taken.get("elementwise_1048576_1_seconds"),
    )
    if isinstance(layer, SampledSeconds):
        told["matrix_flops_per_second"] = 6.0 * 512 * 256 * 256 / layer.median_seconds
    if isinstance(memory, SampledSeconds):
        told["memory_bytes_per_second"] = 2.0 * 1_048_576 / memory.median_seconds
    for ranks in (2, 4):
        small = taken.get(f"all_reduce_{ranks}_4096_seconds")
        large = taken.get(f"all_reduce_{ranks}_16777216_seconds")
        if isinstance(small, SampledSeconds) and isinstance(large, SampledSeconds):
            beta = (large.median_seconds - small.median_seconds) / (16_777_216 - 4_096)
            told[f"all_reduce_{ranks}_alpha_seconds"] = small.median_seconds
            told[f"all_reduce_{ranks}_beta_seconds_per_byte"] = max(beta, 0.0)
    return told


def predicted_run(
    work: Work | None,
    plan: RunPlan,
    primitives: Mapping[str, SampledSeconds | float],
    places: int,
    constants: Constants = BY_HAND,
) -> RunForecast:
    """What one run will need, of that which its passes measure."""
    told = forecast_run(work, primitives, places, constants, plan.link_bits_per_second)
    peak = told.peak_bytes if "metered" in plan.passes else None
    step = told.step_seconds if "timed" in plan.passes else None
    reason = told.reason
    if peak is None and step is None and reason is None:
        reason = "what was predicted of it, none of its passes measures"
    return RunForecast(peak_bytes=peak, step_seconds=step, reason=reason)


def predicted(
    experiments: Iterable[Experiment],
    primitives: Mapping[str, SampledSeconds | float],
    places: int,
    fit: Fit | None = None,
) -> tuple[dict[str, RunForecast], list[ChoiceForecast], list[str]]:
    """Forecasts of some experiments' runs, what is best among those asked about, and failures.

    Each experiment gets the constants that were fitted without its own runs. A run whose simulation
    failed has no forecast, and a line in the third result.
    """
    runs: dict[str, RunForecast] = {}
    choices = []
    chosen = list(experiments)
    known = works(chosen)
    failed = {name for name, work in known.items() if work.has_failed}
    for experiment in chosen:
        constants = fit.constants_for(experiment.name) if fit else BY_HAND
        own = {
            name: predicted_run(
                known.get(f"{experiment.name}.{name}"), plan, primitives, places, constants
            )
            for name, plan in experiment.runs.items()
        }
        told = {f"{experiment.name}.{name}": forecast for name, forecast in own.items()}
        runs |= {path: forecast for path, forecast in told.items() if path not in failed}
        for choice in experiment.choices:
            unknown = set(choice.runs) - set(own)
            assert not unknown, f"{experiment.name}: choice {choice.name} names no runs {unknown}"
            expected = best((name, getattr(own[name], choice.by)) for name in choice.runs)
            if expected is not None:
                choices.append(
                    ChoiceForecast(
                        experiment=experiment.name,
                        name=choice.name,
                        question=choice.question,
                        runs=list(choice.runs),
                        by=choice.by,
                        expected=expected,
                    )
                )
    return runs, choices, failures(known)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def predict(launcher: Launcher, where: Path, progress: Progress) -> tuple[Prediction, list[str]]:
    """Measure primitives, forecast every run, and write `prediction.json`; with what failed.

    Raises:
        LaunchError, OSError.
        PrimitiveError: a primitive could not be measured.
    """
    primitives = measured_primitives(launcher, progress)
    experiments = [on_device(find(name), launcher.device) for name in names()]
    fit = known_fit(where, _references())
    runs, choices, failed = predicted(
        experiments, primitives, machine.num_places(launcher.device), fit
    )
    prediction = Prediction(
        schema_version=1,
        machine=machine.name_of(where),
        recorded_at=_now(),
        primitives=primitives,
        runs=runs,
        choices=choices,
        fit=_name_of(fit),
    )
    write_prediction(where, prediction)
    return prediction, failed


def _references() -> list[Path]:
    """The folders of reference machines, whose fit serves machines that have none."""
    return sorted(machine.TRACES.glob("reference-*"))


def _name_of(fit: Fit | None) -> str | None:
    return f"{fit.machine}, {fit.fitted_at}" if fit else None


def bring_up_to_date(
    experiments: Iterable[Experiment], launcher: Launcher, where: Path, progress: Progress
) -> list[str]:
    """Predict what is about to be measured and was not predicted so before; a line a failure.

    A machine without a prediction gets its first one. One that has a prediction keeps its
    primitives: what is new or has changed is predicted from them, with the time of now.

    Raises:
        LaunchError, OSError.
        PrimitiveError: a primitive could not be measured.
    """
    before = read_prediction(where)
    if before is None or needed() - set(before.primitives):  # or it is of an earlier model
        return predict(launcher, where, progress)[1]
    waiting = [on_device(one, launcher.device) for one in experiments]
    fit = known_fit(where, _references())
    places = machine.num_places(launcher.device)
    runs, choices, failed = predicted(waiting, before.primitives, places, fit)
    now = _now()
    new = {
        name: told.model_copy(update={"recorded_at": now})
        for name, told in runs.items()
        if _said(before.runs.get(name)) != told
    }
    names_now = {one.name for one in waiting}
    kept = [c for c in before.choices if c.experiment not in names_now]
    gone = {f"{one.name}.{name}" for one in waiting for name in one.runs} - set(runs)
    others = {name: told for name, told in before.runs.items() if name not in gone}
    after = before.model_copy(update={"runs": {**others, **new}, "choices": [*kept, *choices]})
    if after.runs != before.runs or sorted(after.choices, key=str) != sorted(
        before.choices, key=str
    ):
        write_prediction(where, after)
    return failed


def _said(told: RunForecast | None) -> RunForecast | None:
    """A forecast without when it was made."""
    return None if told is None else told.model_copy(update={"recorded_at": None})
