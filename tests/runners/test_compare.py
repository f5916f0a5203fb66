"""Values measured again, and machines side by side: what is the same, and what cannot be told."""

import json
import re
import shutil
from pathlib import Path

import pytest

from proofbook.runners.__main__ import main
from proofbook.runners.commands.compare import compare
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.fields import quantity, steps_of
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.spread import field_of, leaves, spread_of
from proofbook.runners.traces.files import read, trace_paths
from proofbook.runners.traces.tolerance import (
    FLOAT_SHARE,
    KERNEL_SHARE,
    LEAST_SHARE,
    MARGIN,
    MOST_SPREAD,
    TIME_FACTOR,
    compare_field,
)  # fmt: skip
from tests.recorded import as_recorded, write
from tests.sampled import REFERENCE, ROOT

FROZEN = Path(__file__).parents[1] / "book" / "content" / "traces" / "reference-frozen"


@pytest.fixture
def other(tmp_path):
    """A copy of the frozen machine under another name."""
    folder = tmp_path / "other"
    shutil.copytree(FROZEN, folder)
    return folder


def _change(folder, experiment, run, change):
    path = folder / f"{experiment}.json"
    document = json.loads(path.read_text())
    change(document["runs"][run])
    as_recorded(document["runs"][run])
    write(path, document)


def _compared(other):
    return compare(*({one.stem: read(one) for one in trace_paths(at)} for at in (FROZEN, other)))


def _slower(factor, num_samples=None):
    """A change of a run whose steps take so many times longer."""

    def change(run):
        step = run["timing"]["step"]
        seconds = [s * factor for s in step["samples"]][:num_samples]
        step.update(SampledSeconds.of(seconds).model_dump())

    return change


def _twice_as_large(run):
    run["ranks"][0]["memory"]["peak_bytes"] *= 2


def _worse(run):
    for epoch in run["epochs"]:
        epoch["loss"] *= 1.25


def _rounded(run):
    run["spread"] = {"epochs.loss": 0.02}
    run["epochs"][0]["loss"] *= 2
    run["ranks"][0]["parameter_digest"] = "0" * 12


WHOLE, AVERAGED = "tiny_memory.whole", "tiny_training.averaged"


@pytest.mark.parametrize(
    ("run", "change", "kind", "said"),
    [
        (AVERAGED, _slower(10), "times", [f"{AVERAGED}, step: "]),
        ("tiny_training.single", _slower(1.0001), "times", []),  # quartile ranges overlap
        (AVERAGED, _slower(1, num_samples=4), "times", []),  # too few to compare
        (WHOLE, _twice_as_large, "unequal", [f"{WHOLE}.ranks[].memory.peak_bytes: "]),
        (AVERAGED, _worse, "unequal", [f"{AVERAGED}.epochs[].loss: "]),
        (AVERAGED, _rounded, "rounded", ["digests: ", f"{AVERAGED}.epochs.loss: "]),
        (f"{WHOLE}_budget", lambda run: run.update(status="completed", step_losses=[1.0]),
         "outcomes", [f"{WHOLE}_budget: out_of_memory | completed"]),  # and not its fields
        (AVERAGED, lambda run: run["settings"].update(batch_size=999),
         "left_out", [f"{AVERAGED}: has other settings there"]),
    ],
)  # fmt: skip
def test_what_a_run_has_otherwise_is_told_by_its_kind(run, change, kind, said, other):
    _change(other, *run.split("."), change)
    found = _compared(other)
    for name in ("times", "unequal", "rounded", "outcomes", "left_out"):
        lines = getattr(found, name)
        assert bool(lines) == (name == kind and bool(said)), (name, lines)
    assert all(any(line.startswith(start) for line in getattr(found, kind)) for start in said)
    assert found.is_none == (kind not in ("unequal", "outcomes") and not found.times)


def test_what_was_not_measured_or_by_other_code_is_left_out_and_said(other):
    (other / "tiny_memory.json").unlink()
    path = other / "tiny_training.json"
    document = json.loads(path.read_text())
    document["code"]["digest"] = "another"
    write(path, document)
    assert _compared(other).left_out == [
        "tiny_memory: not measured on the second",
        "tiny_training: measured by other code",
    ]


def test_the_command_lists_what_differs_and_ends_with_one_where_anything_does(
    other, monkeypatch, capsys
):
    shutil.copytree(FROZEN, other.parent / "first")
    monkeypatch.setattr(machine, "TRACES", other.parent)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)  # `make pages` has no torch
    assert main(["compare", "first", "other"]) == 0

    _change(other, "tiny_memory", "whole", _twice_as_large)
    assert main(["compare", "first", "other"]) == 1

    assert "tiny_memory.whole.ranks[].memory.peak_bytes: " in capsys.readouterr().out
    assert main(["compare", "first", "nowhere"]) == 2


TRACE = ROOT / "tests/book/content/traces/reference-frozen/tiny_training.json"
LOSS, WALL = ["epochs", 0, "loss"], ["timing", "wall_seconds"]
SHARE = ["ranks", 0, "measures", "idle_share"]
LOSSES = ["step_losses"]
DIGEST = ["ranks", 0, "parameter_digest"]
MEASURES = {
    "idle_share": {"unit": "share", "repeats": "clock"},
    "sent_bytes": {"unit": "bytes", "repeats": "kernel"},
}
KERNEL = ["ranks", 0, "measures", "sent_bytes"]  # frames of an interface


@pytest.fixture(scope="module")
def run():
    return read(TRACE).runs["averaged"]


def changed(run, path, value):
    dumped = run.model_dump(mode="json")
    holder = dumped
    *most, last = path
    for key in most:
        holder = holder[key]
    holder[last] = value
    dumped["quantities"] = MEASURES
    return Run.model_validate(dumped)


@pytest.mark.parametrize(
    "row",
    [
        (["ranks", 0, "num_samples"], 8, 9, True, False),
        (DIGEST, "a" * 12, "b" * 12, True, False),
        (DIGEST, "a" * 12, "b" * 12, False, None),
        (LOSS, 1.0, 1 + FLOAT_SHARE / 2, True, False),
        (LOSS, 1.0, 1 + FLOAT_SHARE / 2, False, True),
        (LOSS, 1.0, 1 + 3 * FLOAT_SHARE, False, False),
        (LOSS, 1.1e-7, 3.2e-7, False, True),  # what rounding left of zero
        (LOSS, 1.0, 1 + LEAST_SHARE / 2, False, True, {}),
        (LOSS, 1.0, 1 + FLOAT_SHARE / 2, False, False, {}),
        (LOSS, 1.0, 1 + 0.9 * MARGIN * 0.002, False, True, {"epochs.loss": 0.002}),
        (LOSS, 1.0, 1 + 1.1 * MARGIN * 0.002, False, False, {"epochs.loss": 0.002}),
        (LOSS, 1.0, 1.9, False, None, {"epochs.loss": 2 * MOST_SPREAD}),
        (LOSS, 1.0, 1 + 1e-9, True, False, {"epochs.loss": 2 * MOST_SPREAD}),
        (LOSS, 1.0, 1 + FLOAT_SHARE, False, False, {"validation.loss": 2 * MOST_SPREAD}),
        (["epochs", 0, "accuracy"], 0.996, 0.997, False, True, {}),  # by a sample
        (KERNEL, 10**6, int(10**6 * (1 + KERNEL_SHARE / 2)), True, True),
        (KERNEL, 10**6, int(10**6 * (1 + 2 * KERNEL_SHARE)), True, False),
        (WALL, 1.0, TIME_FACTOR * 0.99, True, True),
        (WALL, 1.0, TIME_FACTOR * 1.01, True, False),
        (SHARE, 16.0, 18.0, True, True),  # worked out from times
        (LOSSES, [1.0, 2.0], [1.0, 2 + FLOAT_SHARE], False, True),
        (LOSSES, [1.0, 2.0], [1.0, 2 + 6 * FLOAT_SHARE], False, False),
        (LOSSES, [1.0, 2.0], [1.0], False, False),
    ],
)
def test_a_value_is_the_same_by_the_rule_and_the_spread_of_its_field(run, row):
    path, page, here, is_like, is_same, *spread = row
    one = changed(run, path, page).model_copy(update={"spread": spread[0] if spread else None})
    assert compare_field(path, one, changed(run, path, here), is_like=is_like).is_same is is_same


def test_a_digest_of_floats_tells_every_bit_under_any_name_and_one_of_a_text_does_not():
    paths = {
        field_of(run, steps)
        for path in trace_paths(REFERENCE)
        for run in read(path).runs.values()
        for steps, value in leaves(run).items()
        if isinstance(value, str) and re.fullmatch("[0-9a-f]{12,}", value)
        if quantity(steps, run.quantities).repeats != "bits"
    }
    assert paths == {"ranks.measures.text_digest"}


def test_a_spread_is_the_largest_difference_of_a_field_above_rounding(run):
    near = changed(run, LOSS, run.epochs[0].loss * 1.002)
    far = changed(run, LOSS, run.epochs[0].loss * 1.004)
    digest = changed(run, DIGEST, "b" * 12)
    assert spread_of(run, [near, far, digest]) == {"epochs.loss": pytest.approx(0.004, rel=0.01)}
    assert spread_of(run, [changed(run, LOSS, run.epochs[0].loss + 1e-7), run]) == {}
    assert spread_of(run, [changed(run, ["ranks", 0, "num_samples"], 9)]).keys() == {
        "ranks.num_samples"
    }


def test_the_field_of_a_path_is_the_same_by_name_and_by_place(run):
    named = ["ranks", "0", "collectives", "all_reduce", "bytes"]
    assert field_of(run, named) == field_of(run, ["ranks", 0, "collectives", 0, "bytes"])
    assert field_of(run, named) == "ranks.collectives.bytes"


def test_of_records_only_how_many_there_are_is_compared(run):
    later = changed(run, ["ranks", 0, "num_samples"], 9)
    assert compare_field(["ranks"], run, later, is_like=True).is_same
    fewer = run.model_copy(update={"ranks": run.ranks[1:]})
    assert not compare_field(["ranks"], run, fewer, is_like=True).is_same


@pytest.mark.parametrize(
    ("here", "is_same"),
    [
        ([0.9, 1.1, 1.2, 1.4, 1.9], True),
        ([5.0, 5.1, 5.2, 5.3, 5.4], False),
        ([1.9, 1.9], True),
        ([1.3] * 5, True),
        ([0.9] * 5, True),
    ],
)
@pytest.mark.parametrize("field", ["median_seconds", "samples"])
def test_times_with_samples_are_the_same_where_quartile_ranges_overlap(run, here, is_same, field):
    def timed(seconds):
        step = SampledSeconds.of(seconds).model_dump(mode="json")
        return changed(run, ["timing", "step"], step)

    path, there = ["timing", "step", field], timed([0.5, 0.9, 1.0, 1.3, 1.5])
    assert compare_field(path, there, timed(here), is_like=True).is_same is is_same


@pytest.mark.parametrize("quoted", ["a.b.c['all reduce'][-1].d", 'a.b.c["all reduce"][-1].d'])
def test_a_path_is_read_with_either_kind_of_quotes(quoted):
    assert steps_of(quoted) == ["a", "b", "c", "all reduce", -1, "d"]
