"""What a machine predicted, compared with what its runs measured."""

import json

import pytest

from generator.evidence.calibration import calibrations, floor_of, predicted
from generator.evidence.choices import chosen, rule_scores, score_of
from generator.pages import rendering
from generator.pages.page import moment
from generator.pages.views import machine_forecasts
from tests.recorded import as_recorded


def forecast_run(
    copy, runs, choices=(), recorded_at="2000-01-01T00:00:00Z", machine="reference-frozen"
):
    """Write a machine's prediction: runs by path, each quantity as (expected, low, high)."""

    def interval(numbers):
        return dict(zip(("expected", "low", "high"), map(float, numbers), strict=True))

    document = {
        "schema_version": 1,
        "machine": machine,
        "recorded_at": recorded_at,
        "primitives": {"matrix_flops_per_second": 2e10, "all_reduce_2_alpha_seconds": 1e-4},
        "runs": {
            path: {
                quantity: interval(asked[quantity]) if quantity in asked else None
                for quantity in ("peak_bytes", "step_seconds")
            }
            for path, asked in runs.items()
        },
        "choices": list(choices),
    }
    folder = copy.content / "traces" / machine
    (folder / "prediction.json").write_text(json.dumps(document))
    return copy.load().machines[machine]


def peak(measured, experiment, run):
    return max(
        one.memory.peak_bytes
        for one in measured.traces[experiment].runs[run].ranks
        if one.memory and one.memory.peak_bytes
    )


CHOICE = {
    "experiment": "tiny_memory", "name": "least", "question": "Which needs the least memory?",
    "runs": ["whole", "halves"], "by": "peak_bytes",
}  # fmt: skip


def test_a_prediction_is_no_trace_and_is_read_with_its_machine(copy):
    measured = forecast_run(copy, {"tiny_memory.whole": {"peak_bytes": (100, 90, 110)}})
    assert set(measured.traces) == {"tiny_memory", "tiny_training"}
    assert measured.prediction.runs["tiny_memory.whole"].peak_bytes.expected == 100


def test_the_outcome_of_memory_is_the_peak_of_the_rank_that_needs_most(copy):
    measured = forecast_run(copy, {"tiny_memory.halves": {"peak_bytes": (1000, 1, 10_000_000)}})
    (one,) = predicted(measured)
    assert one.outcome == peak(measured, "tiny_memory", "halves")
    assert one.is_within
    assert one.counts
    assert one.error == pytest.approx((1000 - one.outcome) / one.outcome)


def test_calibration_is_the_share_within_and_the_median_of_absolute_errors(copy):
    measured = copy.load().machines["reference-frozen"]
    whole, halves = (peak(measured, "tiny_memory", run) for run in ("whole", "halves"))
    measured = forecast_run(
        copy,
        {
            "tiny_memory.whole": {"peak_bytes": (whole * 1.1, whole, whole * 1.2)},
            "tiny_memory.halves": {"peak_bytes": (halves * 0.7, halves * 0.6, halves * 0.8)},
        },
    )
    (found,) = calibrations(measured)  # no step was predicted
    assert found.quantity == "peak_bytes"
    assert (found.coverage.num_outcomes, found.coverage.share) == (2, 0.5)
    assert found.coverage.shortfall == pytest.approx(0.4)
    assert found.median_error == pytest.approx((0.1 + 0.3) / 2)
    assert found.floor is None


def test_peaks_and_step_times_are_scored_apart(copy):
    step = {"step_seconds": (1, 0, 1e9), "peak_bytes": (1, 0, 2)}
    measured = forecast_run(copy, {"tiny_memory.whole": step, "tiny_memory.halves": step})
    found = {one.quantity: one.coverage for one in calibrations(measured)}
    assert (found["step_seconds"].share, found["step_seconds"].shortfall) == (1, 0)
    assert (found["peak_bytes"].share, found["peak_bytes"].shortfall) == (0, 0.9)


def test_what_was_predicted_after_a_run_began_is_not_counted(copy):
    asked = {"tiny_memory.whole": {"peak_bytes": (100, 90, 110)}}
    late = forecast_run(copy, asked, [{**CHOICE, "expected": "halves"}], "2999-01-01T00:00:00Z")
    assert [one.counts for one in predicted(late)] == [False]
    assert calibrations(late) == []
    assert score_of(chosen(late), "peak_bytes") is None


def test_a_run_that_was_skipped_or_measured_nothing_says_why_and_is_not_counted(copy):
    copy.change_run("tiny_memory.whole", status="skipped", reason="no room here")
    measured = forecast_run(copy, {"tiny_memory.whole": {"peak_bytes": (100, 90, 110)}})
    (one,) = predicted(measured)
    assert one.left_out == "no room here"
    assert not one.counts
    assert machine_forecasts.predicted(measured) == [], "its page lists no forecast of it"


@pytest.mark.parametrize("nature", ["simulated", "paced"])
def test_a_run_that_is_not_real_stands_there_but_is_no_outcome(copy, nature):
    copy.change_run("tiny_memory.whole", nature=nature)
    measured = forecast_run(
        copy,
        {"tiny_memory.whole": {"peak_bytes": (100, 90, 110)}},
        [{**CHOICE, "expected": "halves"}],
    )
    (one,) = predicted(measured)
    assert one.outcome == peak(measured, "tiny_memory", "whole")
    assert not one.counts
    assert one.left_out.startswith(nature)
    assert [one.counts for one in chosen(measured)] == [False]


# --- which is best?


def steps(copy, run, seconds, spread=0.0, ranks=None):
    """Overwrite the steps of a run in the trace: median, and quartiles so far beside it."""
    file = copy.trace("tiny_memory")
    document = json.loads(file.read_text())
    document["runs"][run]["timing"]["step"] = {
        "unit": "seconds",
        "samples": [seconds + place * spread for place in (-2, -1, 0, 1, 2)],
        "num_samples": 5,
        "first_quartile_seconds": seconds - spread,
        "median_seconds": seconds,
        "third_quartile_seconds": seconds + spread,
    }
    if ranks is not None:
        document["runs"][run]["world_size"] = ranks
    as_recorded(document["runs"][run])
    file.write_text(json.dumps(document))


def rerun(copy, machine="reference-frozen", **seconds):
    """Say that runs of `tiny_memory` were measured twice: (first, second) seconds of each."""
    trace = copy.load().machines[machine].traces["tiny_memory"]
    both = {
        run: {
            "status": "completed",
            "step_seconds": dict(zip(("first", "second"), pair, strict=True)),
            "peak_bytes": None,
        }
        for run, pair in seconds.items()
    }
    one = {
        "first_at": trace.recorded_at, "digest": trace.code.digest, "quiet": None,
        "second_at": "2030-01-01T00:00:00Z", "runs": both,
    }  # fmt: skip
    document = {"schema_version": 1, "machine": machine, "experiments": {"tiny_memory": one}}
    (copy.trace("reruns", machine)).write_text(json.dumps(document))


FASTER = {**CHOICE, "question": "Which is faster?", "by": "step_seconds"}


def faster(copy, expected):
    return chosen(forecast_run(copy, {}, [{**FASTER, "expected": expected}]))


def test_regret_is_what_the_picked_run_needed_over_the_best_minus_one(copy):
    steps(copy, "whole", 3.0, 0.1)
    steps(copy, "halves", 2.0, 0.1)
    (wrong,) = faster(copy, "whole")
    assert (wrong.best, wrong.verdict_of("whole")) == ("halves", "wrong")
    assert wrong.regret_of("whole") == pytest.approx(0.5)
    (right,) = faster(copy, "halves")
    assert (right.verdict_of("halves"), right.regret_of("halves")) == ("right", 0)


def test_runs_whose_quartile_ranges_overlap_decide_nothing(copy):
    steps(copy, "whole", 3.0, 0.6)
    steps(copy, "halves", 2.0, 0.6)
    for picked in ("whole", "halves"):
        (one,) = faster(copy, picked)
        assert one.verdict_of(picked) == "undecided"
    found = score_of(faster(copy, "whole"), "step_seconds")
    assert (found.num, found.num_decided, found.num_right) == (1, 0, 0)
    assert found.worst_regret == pytest.approx(0.5)  # as it was measured


def test_runs_that_differ_by_no_more_than_the_floor_decide_nothing(copy):
    steps(copy, "whole", 2.2, 0.001)
    steps(copy, "halves", 2.0, 0.001)
    assert faster(copy, "whole")[0].verdict_of("whole") == "wrong"
    rerun(copy, whole=(2.2, 2.0))  # the floor is a tenth
    assert faster(copy, "whole")[0].verdict_of("whole") == "undecided"
    rerun(copy, whole=(2.2, 2.1))  # the floor is a twenty-first
    assert faster(copy, "whole")[0].verdict_of("whole") == "wrong"


def test_a_wrong_pick_stays_wrong_where_two_others_are_nearly_equal(copy):
    file = copy.trace("tiny_memory")
    document = json.loads(file.read_text())
    document["runs"]["third"] = document["runs"]["whole"]
    file.write_text(json.dumps(document))
    steps(copy, "whole", 9.0, 0.1)
    steps(copy, "halves", 2.0, 0.1)
    steps(copy, "third", 2.1, 0.1)
    choice = {**FASTER, "runs": ["whole", "halves", "third"], "expected": "whole"}
    (one,) = chosen(forecast_run(copy, {}, [choice]))
    assert one.verdict_of("whole") == "wrong"
    assert one.regret_of("whole") == pytest.approx(3.5)
    assert (one.verdict_of("halves"), one.verdict_of("third")) == ("undecided", "undecided")


def test_skill_is_the_share_of_a_rules_mean_regret_that_the_forecasts_avoid(copy):
    steps(copy, "whole", 3.0, 0.1, ranks=1)
    steps(copy, "halves", 2.0, 0.1, ranks=2)
    rerun(copy, whole=(3.0, 3.0), halves=(2.0, 4.0))  # the rerun says the other one
    right = {"name": "right", "expected": "halves"}
    wrong = {"name": "wrong", "expected": "whole"}
    choices = [{**FASTER, **right}, {**FASTER, **wrong}]
    found = chosen(forecast_run(copy, {}, choices))
    ours = score_of(found, "step_seconds")
    assert (ours.num_right, ours.num_decided) == (1, 2)
    assert (ours.median_regret, ours.worst_regret, ours.mean_regret) == (0.25, 0.5, 0.25)
    rules = {one.rule: one for one in rule_scores(found, "step_seconds")}
    assert set(rules) == {"one_device", "fewest_ranks", "rerun"}
    for rule in rules.values():
        assert (rule.score.num_right, rule.score.mean_regret) == (0, 0.5)
        assert rule.skill == pytest.approx(0.5)


def test_a_rule_that_names_no_single_run_answers_nothing(copy):
    steps(copy, "whole", 3.0, 0.1, ranks=2)
    steps(copy, "halves", 2.0, 0.1, ranks=2)
    assert rule_scores(faster(copy, "whole"), "step_seconds") == []


def test_against_a_rule_without_regret_there_is_no_skill(copy):
    steps(copy, "whole", 2.0, 0.1, ranks=1)
    steps(copy, "halves", 3.0, 0.1, ranks=2)
    one, _ = rule_scores(faster(copy, "halves"), "step_seconds")
    assert one.rule == "one_device"
    assert (one.score.mean_regret, one.skill) == (0, None)


# --- the floor


def test_the_floor_is_the_median_error_of_predicting_a_rerun(copy):
    rerun(copy, whole=(3.0, 2.0), halves=(1.0, 1.0))
    found = floor_of(copy.load().machines["reference-frozen"], "step_seconds")
    assert (found.median_error, found.num_near, found.num_pairs) == (0.25, 1, 2)


def test_reruns_of_a_trace_that_is_there_no_more_are_no_floor(copy):
    rerun(copy, whole=(3.0, 2.0))
    file = copy.trace("tiny_memory")
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "recorded_at": "2031-01-01T00:00:00Z"}))
    assert floor_of(copy.load().machines["reference-frozen"], "step_seconds") is None


def test_reruns_of_another_machine_are_refused_with_their_place(copy):
    rerun(copy, whole=(3.0, 2.0))
    file = copy.trace("reruns")
    file.write_text(file.read_text().replace("reference-frozen", "another"))
    assert copy.errors() == [
        "content/traces/reference-frozen/reruns.json: machine: is 'another', "
        "the folder says 'reference-frozen'"
    ]


def test_a_choice_among_runs_that_were_not_all_measured_is_left_open(copy):
    choice = {**CHOICE, "runs": ["whole", "elsewhere"], "expected": "whole"}
    measured = forecast_run(copy, {}, [choice])
    assert [one.best for one in chosen(measured)] == [None]


def test_a_prediction_of_another_machine_is_refused_with_its_place(copy):
    forecast_run(copy, {})
    file = copy.content / "traces" / "reference-frozen" / "prediction.json"
    file.write_text(file.read_text().replace("reference-frozen", "elsewhere"))
    assert copy.errors() == [
        "content/traces/reference-frozen/prediction.json: machine: is 'elsewhere', "
        "the folder says 'reference-frozen'"
    ]


def page_of(copy):
    return rendering.render(copy.load())["machines/reference-frozen.md"]


def test_a_machines_page_shows_forecast_beside_outcome_with_errors_as_they_are(copy):
    measured = copy.load().machines["reference-frozen"]
    whole = peak(measured, "tiny_memory", "whole")
    forecast_run(
        copy,
        {"tiny_memory.whole": {"peak_bytes": (whole * 2, whole, whole * 3)}},
        [{**CHOICE, "expected": "whole"}],
    )
    text = page_of(copy)
    assert "tiny_memory.html#predicted-reference-frozen" in text
    runs = rendering.render(copy.load())["evidence/tiny_memory.md"]
    table = runs.split('pb-details pb-predicted"')[1].split("</table>")[0]
    off = table.split('data-label="Error"')[1].split("</a>")[0]
    assert off.endswith(">100%")
    assert "within" in table
    assert "all_reduce" in text
    assert 'pb-does-not-hold">wrong<' in text
    assert "figure-predicted" in text
    assert "reaches the nominal coverage" in text
    assert "short by" not in text


def test_a_shortfall_is_told_in_words_and_in_red_on_both_pages(copy):
    forecast_run(copy, {"tiny_memory.whole": {"peak_bytes": (1, 0, 2)}})
    for page in ("machines/reference-frozen.md", "machines/index.md"):
        text = rendering.render(copy.load())[page]
        told = text.split('<strong class="pb-does-not-hold">short by')[1].split("</strong>")[0]
        assert told.endswith("percentage points")
        assert ">90.0<" in told
    assert "reaches the nominal coverage" not in text


def test_every_forecast_stands_beside_the_error_of_its_rerun(copy):
    steps(copy, "whole", 2.0, 0.1)
    asked = {"tiny_memory.whole": {"step_seconds": (2, 1, 3)}}
    forecast_run(copy, asked)
    assert "How well times repeat" not in page_of(copy), "nothing was measured a second time"
    rerun(copy, whole=(2.0, 1.6))
    text = page_of(copy)
    runs = rendering.render(copy.load())["evidence/tiny_memory.md"]
    table = runs.split('pb-details pb-predicted"')[1].split("</table>")[0]
    assert ">25%</a>" in table.split('data-label="Error of a rerun"')[1].split("</td>")[0]
    assert "How well times repeat" in text


def test_a_rule_that_beats_the_forecasts_is_told_in_words_and_in_red(copy):
    steps(copy, "whole", 3.0, 0.1, ranks=1)
    steps(copy, "halves", 2.0, 0.1, ranks=2)
    right = {**FASTER, "name": "right", "expected": "halves"}
    forecast_run(copy, {}, [right])
    assert "Always one device" in page_of(copy)
    assert "worse than the rule" not in page_of(copy)
    steps(copy, "whole", 2.0, 0.1, ranks=1)
    steps(copy, "halves", 3.0, 0.1, ranks=2)
    file = copy.trace("tiny_memory")
    document = json.loads(file.read_text())
    document["runs"]["third"] = document["runs"]["whole"]
    file.write_text(json.dumps(document))
    steps(copy, "third", 1.9, 0.01, ranks=3)
    choice = {**FASTER, "runs": ["whole", "halves", "third"], "expected": "halves"}
    forecast_run(copy, {}, [choice])
    told = page_of(copy).split("(worse than the rule)")
    assert 'class="pb-does-not-hold"' in told[0].rsplit("<strong", 1)[1]


def test_a_machine_that_predicted_nothing_says_so(copy):
    text = rendering.render(copy.load())["machines/reference-frozen.md"]
    assert "measured without predicting anything" in text


def test_a_machines_page_says_which_experiments_were_measured_on_a_quiet_machine(copy):
    page = "machines/reference-frozen.md"
    assert "do not record whether the machine was quiet" in rendering.render(copy.load())[page]
    canary = {"before_seconds": 0.001, "after_seconds": 0.001}
    quiet = {
        "load_before_share": 0.01, "load_after_share": None, "canaries": {"compute": canary},
        "largest_ratio": 1.0,
    }  # fmt: skip
    busy = quiet | {"load_before_share": 0.4}
    for experiment, record in (("tiny_memory", quiet), ("tiny_training", busy)):
        file = copy.trace(experiment)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"quiet": record}))
    text = rendering.render(copy.load())[page]
    assert "experiments were measured on a quiet machine. Not quiet: tiny training.</p>" in text
    assert "Not recorded" not in text


# --- the constants of the intervals


def test_printed_shares_differ_by_the_printed_shortfall(copy):
    forecast_run(copy, {"tiny_memory.whole": {"peak_bytes": (1, 0, 2)}})
    constants = {"computing_error": 0.1, "communication_error": 0.2, "peak_error": 0.01}
    numbers = {"num_steps": 80, "num_steps_within": 63, "num_peaks": 4, "num_peaks_within": 4}
    document = {
        "schema_version": 1, "machine": "reference-frozen", "fitted_at": "2026-01-02T03:04:05Z",
        "constants": constants, "computing_runs": ["tiny_memory.whole"], "communication_runs": [],
        "peak_runs": [], "without": {"tiny_memory": {"constants": constants, **numbers}},
    }  # fmt: skip
    copy.trace("constants").write_text(json.dumps(document))
    table = page_of(copy).split("scored on its own")[1].split("</table>")[0]
    assert ">78.8%<" in table
    assert ">11.2<" in table, "90.0 − 78.8, though 90 − 78.75 rounds to 11.3"


def test_a_machines_page_says_where_the_constants_come_from_and_scores_them_on_others(copy):
    forecast_run(copy, {"tiny_memory.whole": {"peak_bytes": (1, 0, 2)}})
    assert "set by hand" in page_of(copy)
    constants = {"computing_error": 0.1, "communication_error": 0.2, "peak_error": 0.01}
    left_out = {"constants": constants, "num_steps": 10, "num_steps_within": 7}
    one = {**left_out, "num_peaks": 4, "num_peaks_within": 4}
    document = {
        "schema_version": 1, "machine": "reference-frozen", "fitted_at": "2026-01-02T03:04:05Z",
        "constants": constants, "computing_runs": ["tiny_memory.whole"], "communication_runs": [],
        "peak_runs": [], "without": {"tiny_memory": one},
    }  # fmt: skip
    copy.trace("constants").write_text(json.dumps(document))
    table = page_of(copy).split("scored on its own")[1].split("</table>")[0]
    assert "2 January 2026, 03:04:05 UTC" in table
    assert ">20.0<" in table.split("short by")[1].split("</strong>")[0]  # seven of ten
    assert table.count("short by") == 1
    file = copy.trace("prediction")
    document = json.loads(file.read_text()) | {"fit": "reference-frozen, 2026-01-02T03:04:05Z"}
    file.write_text(json.dumps(document))
    assert "set by hand" not in page_of(copy)
    assert "reference-frozen, 2 January 2026, 03:04:05 UTC" in page_of(copy)
    assert "fitted on the runs of the others" in page_of(copy)


def test_constants_set_by_hand_spoil_the_coverage_of_the_reference_machine_only(copy):
    copy.add_machine("cpu-mine", "tiny_memory")
    for machine in ("reference-frozen", "cpu-mine"):
        forecast_run(copy, {"tiny_memory.whole": {"peak_bytes": (1, 0, 2)}}, machine=machine)
    rendered = rendering.render(copy.load())
    of_both = [rendered[f"machines/{one}.md"] for one in ("reference-frozen", "cpu-mine")]
    assert ["set by hand" in one for one in of_both] == [True, True]
    assert ["no independent test" in one for one in of_both] == [True, False]


def test_a_machines_page_says_what_decides_the_order_of_forecast_and_run(copy):
    forecast_run(copy, {"tiny_memory.whole": {"peak_bytes": (1, 0, 2)}})
    told = page_of(copy).split("Where one commit holds both")[1].split("</p>")[0]
    traces = copy.load().machines["reference-frozen"].traces.values()
    assert "1 January 2000, 00:00:00 UTC" in told
    assert min(moment(one.recorded_at) for one in traces) in told
