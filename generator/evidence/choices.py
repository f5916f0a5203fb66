"""Which strategy was expected to be best, which was best, and what the difference cost. Pure.

In: a machine's folder, with `prediction.json`, `reruns.json` and its traces. Out: for each choice
among runs what was picked, its *regret* (what it needed over what the best run needed, minus one)
and a verdict; and scores of the forecasts beside those of trivial rules on the same questions.

Two runs are nearly equal where the quartile ranges of their steps overlap, or where they differ by
no more than the floor, the median error of predicting a rerun. A question whose answer hangs on
such a difference is undecided, neither right nor wrong; its regret counts as it was measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from generator.content.shelf import Measured
from generator.evidence.calibration import NOT_REAL, floor_of, outcome_of
from runners.traces.prediction import ChoiceForecast
from runners.traces.records import Run
from runners.traces.reruns import QUANTITIES, Quantity, Rerun, pairs
from runners.traces.tolerance import overlap

ChoiceVerdict = Literal["right", "wrong", "undecided"]
RuleName = Literal["one_device", "fewest_ranks", "rerun"]
NOT_ALL = "not all were measured"


@dataclass(frozen=True)
class Chosen:
    """One choice: which run was expected to be best, and the outcome.

    Attributes:
        forecast: the question, the runs, and the one expected to be best.
        outcomes: what each run needed; empty where not all were measured.
        near_best: the runs that are nearly equal to the best one, the best among them.
        is_before: whether all was predicted before the experiment's first run began.
        left_out: why the question is not scored; None where it is.
        runs: the runs, by name, as measured.
        reruns: those of them that were measured twice.
    """

    forecast: ChoiceForecast
    outcomes: Mapping[str, float]
    near_best: frozenset[str]
    is_before: bool
    left_out: str | None
    runs: Mapping[str, Run]
    reruns: Mapping[str, Rerun]

    @property
    def best(self) -> str | None:
        """The run that needed least; None where not all were measured."""
        return min(self.outcomes, key=lambda run: self.outcomes[run], default=None)

    @property
    def counts(self) -> bool:
        """Whether the forecast is scored on it."""
        return self.is_before and self.left_out is None

    def verdict_of(self, picked: str) -> ChoiceVerdict:
        """Whether a run was the right pick; undecided where the best run is not clearly best."""
        if picked not in self.near_best:
            return "wrong"
        return "right" if len(self.near_best) == 1 else "undecided"

    def regret_of(self, picked: str) -> float:
        """What the picked run needed over what the best one needed, minus one."""
        return self.outcomes[picked] / min(self.outcomes.values()) - 1


@dataclass(frozen=True)
class Score:
    """How good some picks were.

    Attributes:
        num: questions that are scored.
        num_right: of these.
        num_undecided: of these: the best run is not clearly best.
        median_regret: over all of them.
        worst_regret: of any.
        mean_regret: over all of them.
    """

    num: int
    num_right: int
    num_undecided: int
    median_regret: float
    worst_regret: float
    mean_regret: float

    @property
    def num_decided(self) -> int:
        """Questions whose best run is clearly best, or whose pick is clearly not."""
        return self.num - self.num_undecided


@dataclass(frozen=True)
class RuleScore:
    """A trivial rule beside the forecasts, on the questions that the rule answers.

    Attributes:
        rule: its name.
        score: of the rule.
        forecast: of the forecasts, on the same questions.
    """

    rule: RuleName
    score: Score
    forecast: Score

    @property
    def skill(self) -> float | None:
        """The share of the rule's mean regret that the forecasts avoid; None where it has none.

        1 is a forecast without regret, 0 one that is no better than the rule, and below 0 it is
        worse.
        """
        if not self.score.mean_regret:
            return None
        return 1 - self.forecast.mean_regret / self.score.mean_regret


def chosen(measured: Measured) -> list[Chosen]:
    """Every choice of experiments that the machine has measured."""
    if measured.prediction is None:
        return []
    found = pairs(measured.reruns, measured.traces)
    floors = {by: floor_of(measured, by) for by in QUANTITIES}
    nearly = {by: one.median_error if one else 0.0 for by, one in floors.items()}
    return [
        _chosen(forecast, measured, found, nearly[forecast.by])
        for forecast in measured.prediction.choices
        if forecast.experiment in measured.traces
    ]


def _chosen(
    forecast: ChoiceForecast, measured: Measured, reruns: Mapping[str, Rerun], nearly: float
) -> Chosen:
    assert measured.prediction is not None
    trace = measured.traces[forecast.experiment]
    runs = {name: trace.runs[name] for name in forecast.runs if name in trace.runs}
    taken = {name: outcome_of(run, forecast.by)[0] for name, run in runs.items()}
    outcomes = {name: outcome for name, outcome in taken.items() if outcome}
    if len(outcomes) < len(forecast.runs):
        outcomes = {}
    paths = [f"{forecast.experiment}.{name}" for name in forecast.runs]
    told = [measured.prediction.runs[path].recorded_at for path in paths
            if path in measured.prediction.runs]  # fmt: skip
    said = max([measured.prediction.recorded_at, *(one for one in told if one is not None)])
    return Chosen(
        forecast=forecast,
        outcomes=outcomes,
        near_best=_near_best(outcomes, runs, forecast.by, nearly),
        is_before=trace.recorded_at >= said,
        left_out=_left_out(runs.values(), is_whole=bool(outcomes)),
        runs=runs,
        reruns={n: reruns[p] for n, p in zip(forecast.runs, paths, strict=True) if p in reruns},
    )


def _left_out(runs: Iterable[Run], *, is_whole: bool) -> str | None:
    natures = {run.nature for run in runs} - {"real"}
    if natures:
        return NOT_REAL[min(natures)]
    return None if is_whole else NOT_ALL


def _near_best(
    outcomes: Mapping[str, float], runs: Mapping[str, Run], by: Quantity, nearly: float
) -> frozenset[str]:
    if not outcomes:
        return frozenset()
    best = min(outcomes, key=lambda name: outcomes[name])
    return frozenset(
        name
        for name in outcomes
        if name == best
        or outcomes[name] <= outcomes[best] * (1 + nearly)
        or (by == "step_seconds" and _overlap(runs[name], runs[best]))
    )


def _overlap(one: Run, other: Run) -> bool:
    first, second = one.timing.step, other.timing.step
    return first is not None and second is not None and overlap(first, second)


def _fewest(one: Chosen) -> str | None:
    """The run with the fewest ranks, where only one has so few."""
    fewest = min(run.world_size for run in one.runs.values())
    found = [name for name, run in one.runs.items() if run.world_size == fewest]
    return found[0] if len(found) == 1 else None


def _one_device(one: Chosen) -> str | None:
    """The run of a single rank, where there is just one."""
    found = [name for name, run in one.runs.items() if run.world_size == 1]
    return found[0] if len(found) == 1 else None


def _repeated(one: Chosen) -> str | None:
    """The run that was best when the same runs were measured another time."""
    both = {name: getattr(rerun, one.forecast.by) for name, rerun in one.reruns.items()}
    seconds = {name: pair.second for name, pair in both.items() if pair is not None}
    if len(seconds) < len(one.forecast.runs):
        return None
    return min(seconds, key=lambda name: seconds[name])


RULES: dict[RuleName, Callable[[Chosen], str | None]] = {
    "one_device": _one_device,
    "fewest_ranks": _fewest,
    "rerun": _repeated,
}


def score(picks: Sequence[tuple[Chosen, str]]) -> Score | None:
    """The score of picks; None without any."""
    if not picks:
        return None
    verdicts = [one.verdict_of(picked) for one, picked in picks]
    regrets = [one.regret_of(picked) for one, picked in picks]
    return Score(
        num=len(picks),
        num_right=verdicts.count("right"),
        num_undecided=verdicts.count("undecided"),
        median_regret=statistics.median(regrets),
        worst_regret=max(regrets),
        mean_regret=statistics.fmean(regrets),
    )


def score_of(choices: Sequence[Chosen], by: Quantity) -> Score | None:
    """The score of the forecasts on the choices by one quantity; None without any."""
    return score([(one, one.forecast.expected) for one in choices if _is_by(one, by)])


def rule_scores(choices: Sequence[Chosen], by: Quantity) -> list[RuleScore]:
    """Each trivial rule beside the forecasts, on the questions that it answers."""
    found = []
    for rule, picks in RULES.items():
        answered = [(one, picked) for one in choices if _is_by(one, by) and (picked := picks(one))]
        ours = score([(one, one.forecast.expected) for one, _ in answered])
        theirs = score(answered)
        if ours and theirs:
            found.append(RuleScore(rule, theirs, ours))
    return found


def _is_by(one: Chosen, by: Quantity) -> bool:
    return one.counts and one.forecast.by == by
