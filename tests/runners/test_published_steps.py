"""Published training steps: operations against the sources' own counts."""

from itertools import groupby

import pytest

from runners.__main__ import main
from runners.planner.answers import published_steps as steps
from runners.planner.answers.published import STEPS, is_stale
from runners.traces.files import read

ROWS = {row.run: row for row in steps.published_steps(steps.STEPS)}
SEARCHED = groupby(steps.published_steps(steps.CHOICES), lambda row: row.table)
SEARCHES = {table: list(rows) for table, rows in SEARCHED}


def test_the_committed_file_is_what_the_list_gives_today():
    committed = read(STEPS.path)
    assert committed.runs == steps.runs()
    assert not is_stale(committed)


def test_the_command_prints_a_line_for_every_run(capsys):
    assert main(["plan", "check", "plan_steps"]) == 0
    *printed, said = capsys.readouterr().out.splitlines()
    assert said == "plan_steps: the same"
    assert all(map(str.startswith, sorted(printed), sorted(read(STEPS.path).runs)))
    assert len(printed) == len(read(STEPS.path).runs)


def test_operations_are_those_of_equation_3_of_the_paper():
    row = ROWS["sc21_ptd_gpt_175b_2048_on_768"]
    layers, hidden, length = row.layers, row.hidden, row.sequence
    share = 1 + length / (6 * hidden) + row.vocabulary / (16 * layers * hidden)
    whole = 96 * row.batch * length * layers * hidden**2 * share
    assert steps.flops(row) * row.devices == pytest.approx(whole)


@pytest.mark.parametrize(
    ("run", "parameters", "mfu"),  # as the benchmark of MPT prints them beside the rate
    [
        ("mpt_a100_80_mpt_13b_4096_on_8", 12_864_440_320, 0.5762),
        ("mpt_a100_80_stored_mpt_7b_2048_on_8", 6_658_859_008, 0.6423),
        ("mpt_a100_40_mpt_70b_2048_on_128", 64_862_437_376, 0.4891),
    ],
)
def test_a_rate_of_mpt_is_the_utilization_that_its_source_gives(run, parameters, mfu):
    row = ROWS[run]
    model_flops = 6 * parameters + 12 * row.layers * row.hidden * row.sequence
    assert row.rate * model_flops / row.flops == pytest.approx(mfu, rel=0.005)
    again = (4 if row.recomputed else 3) / 3  # of each device and second: the hardware's share
    seconds = steps.published_seconds(row)
    assert steps.flops(row) / seconds / row.flops == pytest.approx(mfu * again, rel=0.01)


@pytest.mark.parametrize("table", SEARCHES)
def test_the_law_counts_the_operations_of_the_published_mfu(table):
    """So the batch, the vocabulary and the widths, which no table states, are those that ran."""
    won, seconds = SEARCHES[table][0], SEARCHES[table][0].rate
    assert seconds == min(row.rate for row in SEARCHES[table])
    whole = won.model_copy(update={"tensor": 1, "pipeline": 1, "micro": 1})
    # The published MFU counts the embedding like the logits; looking a token up is no product.
    embedding = 6 * won.batch * won.sequence * won.hidden * won.vocabulary
    looked_up = embedding / (won.devices * won.flops)
    assert steps.law(whole).computing + looked_up == pytest.approx(won.mfu * seconds, rel=0.005)
    assert steps.law(won).at_least < seconds
