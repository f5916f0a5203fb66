"""What a machine predicted, held against what its runs measured."""

import json

import pytest

from generator.evidence.calibration import calibration, chosen, predicted
from generator.pages import rendering


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
        [{**CHOICE, "expected": "halves"}, {**CHOICE, "name": "wrong", "expected": "whole"}],
    )
    found = calibration(predicted(measured), chosen(measured))
    assert found.num_outcomes == 2
    assert found.within_share == 0.5
    assert found.errors["peak_bytes"] == pytest.approx((0.1 + 0.3) / 2)
    assert found.errors["step_seconds"] is None
    assert (found.num_correct, found.num_choices) == (1, 2)


def test_what_was_predicted_after_a_run_began_is_not_counted(copy):
    asked = {"tiny_memory.whole": {"peak_bytes": (100, 90, 110)}}
    late = forecast_run(copy, asked, [{**CHOICE, "expected": "halves"}], "2999-01-01T00:00:00Z")
    assert [one.counts for one in predicted(late)] == [False]
    found = calibration(predicted(late), chosen(late))
    assert (found.num_outcomes, found.num_choices, found.within_share) == (0, 0, None)


def test_a_run_that_was_skipped_or_measured_nothing_says_why_and_is_not_counted(copy):
    copy.change_run("tiny_memory.whole", status="skipped", reason="no room here")
    measured = forecast_run(copy, {"tiny_memory.whole": {"peak_bytes": (100, 90, 110)}})
    (one,) = predicted(measured)
    assert one.left_out == "no room here"
    assert not one.counts


def test_a_simulated_run_stands_there_but_is_no_outcome(copy):
    copy.change_run("tiny_memory.whole", nature="simulated")
    measured = forecast_run(copy, {"tiny_memory.whole": {"peak_bytes": (100, 90, 110)}})
    (one,) = predicted(measured)
    assert one.outcome == peak(measured, "tiny_memory", "whole")
    assert not one.counts


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


def test_a_machines_page_shows_forecast_beside_outcome_with_errors_as_they_are(copy):
    measured = copy.load().machines["reference-frozen"]
    whole = peak(measured, "tiny_memory", "whole")
    forecast_run(
        copy,
        {"tiny_memory.whole": {"peak_bytes": (whole * 2, whole, whole * 3)}},
        [{**CHOICE, "expected": "whole"}],
    )
    text = rendering.render(copy.load())["machines/reference-frozen.md"]
    table = text.split('pb-details pb-predicted"')[1].split("</table>")[0]
    off = table.split('data-label="Off by"')[1].split("</button>")[0]
    assert off.endswith(">100%")
    assert "within" in table
    assert "all_reduce" in text
    assert 'pb-does-not-hold">wrong<' in text
    assert "figure-predicted" in text


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
