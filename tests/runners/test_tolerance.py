"""When a value measured again is the same: the rule for each kind of field."""

import pytest

from runners.traces.fields import exactly, in_words, steps_of
from runners.traces.files import read
from runners.traces.measured import SampledSeconds
from runners.traces.records import Run
from runners.traces.tolerance import FLOAT_SHARE, TIME_FACTOR, tolerance
from tests.conftest import ROOT

TRACE = ROOT / "tests/book/content/traces/reference-frozen/tiny_training.json"


@pytest.fixture(scope="module")
def run():
    return read(TRACE).runs["averaged"]


def changed(run, path, value):
    """The run with another value at a path of dots and positions."""
    dumped = run.model_dump(mode="json")
    holder = dumped
    *most, last = path
    for key in most:
        holder = holder[key]
    assert holder[last] != value
    holder[last] = value
    return Run.model_validate(dumped)


def judged(run, path, value, *, is_like=True):
    return tolerance(path, run, changed(run, path, value), is_like=is_like)


def test_a_count_that_is_one_more_differs(run):
    count = run.ranks[0].num_samples
    assert not judged(run, ["ranks", 0, "num_samples"], count + 1).is_same
    assert tolerance(["ranks", 0, "num_samples"], run, run, is_like=False).is_same


def test_another_outcome_and_another_digest_differ(run):
    assert not judged(run, ["status"], "died").is_same
    assert not judged(run, ["ranks", 0, "parameter_digest"], "0" * 12, is_like=False).is_same


def test_a_loss_is_equal_on_a_machine_of_the_kind_and_near_on_another(run):
    path, loss = ["epochs", 0, "loss"], run.epochs[0].loss
    near, far = loss * (1 + FLOAT_SHARE / 2), loss * (1 + 3 * FLOAT_SHARE)
    assert not judged(run, path, near).is_same
    assert judged(run, path, near, is_like=False).is_same
    assert not judged(run, path, far, is_like=False).is_same


def test_what_rounding_left_of_zero_is_the_same_as_another_rest(run):
    one = changed(run, ["epochs", 0, "loss"], 1.1e-7)
    other = changed(run, ["epochs", 0, "loss"], 3.2e-7)
    assert tolerance(["epochs", 0, "loss"], one, other, is_like=False).is_same
    assert not tolerance(["epochs", 0, "loss"], one, other, is_like=True).is_same


def timed(run, seconds):
    step = SampledSeconds.of(seconds).model_dump(mode="json")
    return changed(run, ["timing", "step"], step)


@pytest.mark.parametrize(
    ("here", "is_same"),
    [
        ([0.9, 1.1, 1.2, 1.4, 1.9], True),
        ([5.0, 5.1, 5.2, 5.3, 5.4], False),
    ],
)
@pytest.mark.parametrize("field", ["median_seconds", "samples"])
def test_times_with_samples_are_the_same_where_quartile_ranges_overlap(run, here, is_same, field):
    there = timed(run, [0.5, 0.9, 1.0, 1.3, 1.5])
    path = ["timing", "step", field]
    assert tolerance(path, there, timed(run, here), is_like=True).is_same is is_same


def test_a_single_time_is_the_same_within_a_factor(run):
    path, whole = ["timing", "wall_seconds"], run.timing.wall_seconds
    assert judged(run, path, whole * TIME_FACTOR * 0.99).is_same
    assert not judged(run, path, whole / TIME_FACTOR * 0.99).is_same


def test_the_words_of_a_value_are_those_of_the_page():
    assert exactly(1, "bytes") == "1\u00a0byte"
    assert exactly(164_000, "bytes") == "164,000\u00a0bytes"
    assert exactly(3.366e-05, "seconds") == "3.366\u00a0×\u00a010⁻⁵\u00a0seconds"
    assert in_words([4, 1000], ("model", "weight_shape")) == "4\u00a0×\u00a01,000"
    assert in_words([{}, {}], ("timing", "timeline")) == "2 entries"


@pytest.mark.parametrize("quoted", ["a.b.c['all reduce'][-1].d", 'a.b.c["all reduce"][-1].d'])
def test_a_path_is_read_with_either_kind_of_quotes(quoted):
    assert steps_of(quoted) == ["a", "b", "c", "all reduce", -1, "d"]


def _measured(run, name, value):
    rank = run.ranks[0].model_copy(update={"measures": {name: value}})
    return run.model_copy(update={"ranks": [rank]})


@pytest.mark.parametrize("name", ["idle_share", "sending_share", "inside_share", "num_long_steps"])
@pytest.mark.parametrize("is_like", [True, False])
def test_a_number_that_was_worked_out_from_times_is_held_to_a_factor(run, name, is_like):
    path, here = ["ranks", 0, "measures", name], _measured(run, name, 16.0)
    assert tolerance(path, here, _measured(run, name, 18.0), is_like=is_like).is_same
    assert not tolerance(path, here, _measured(run, name, 7.0), is_like=is_like).is_same


def test_a_word_that_was_worked_out_from_times_may_be_another(run):
    path, here = (
        ["ranks", 0, "measures", "break_even_place"],
        _measured(run, "break_even_place", "inside"),
    )
    assert tolerance(path, here, _measured(run, "break_even_place", "above"), is_like=True).is_same
