"""The estimate: what it is fitted to, what its parts are, and how well it chooses."""

from dataclasses import replace

import pytest

from runners.planner.answers import closed_form
from runners.planner.answers import published_layouts as published
from runners.planner.answers.answer import answers_of
from runners.planner.answers.estimate import START, Parameters, Work, estimated, fitted
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.plan_grid import read_grid
from runners.planner.answers.published import LAYOUTS, is_stale
from runners.planner.answers.question import PlanError
from runners.planner.simulated.grid import GRIDS, PLANS
from runners.traces.files import read

WORK = Work(
    stages=((1e15, 0.0, 0.0, 0.0, 0), (2e15, 0.0, 0.0, 0.0, 0)),
    beside=(0.5, 0.0), hidden_by=0, flops=1e15, num_microbatches=4, chunks=1, num_summing=1,
    update_bytes=0.0, is_far=False,
)  # fmt: skip
PLAIN = Parameters(1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.fixture
def num_fits():
    """To the whole list, and to what is left without its first and without its second cluster."""
    return 3


def test_the_committed_file_is_what_the_list_gives_today(num_fits, monkeypatch):
    """`make soak` leaves out each cluster in turn, as the two runs over all of them need."""
    committed, fit, made = read(LAYOUTS.path), published.fit, []

    def fit_some(known, start=START):
        made.append(fit(known, start) if len(made) < num_fits else made[0])
        return made[-1]

    monkeypatch.setattr(published, "fit", fit_some)
    runs = published.runs()
    assert runs.keys() == committed.runs.keys()
    clusters = [name for name in runs if name.startswith("cluster")]
    assert len(made) == 1 + len(clusters) > 3
    late = {*clusters[num_fits - 1 :], "all", "fitted"} if num_fits < len(made) else {}
    for name in runs.keys() - late:
        assert runs[name] == committed.runs[name], name
    assert not is_stale(committed)
    assert made[0] == fitted().parameters
    assert made[0]._asdict().items() <= committed.runs["fitted"].ranks[0].measures.items()


def test_the_longest_stage_sets_the_pace_and_the_others_fill_the_pipeline():
    found = estimated(WORK, PLAIN)
    assert (found.computing, found.idle, found.sums) == (8.0, 1.0, 0.5)
    assert found.seconds == 9.5
    assert estimated(WORK._replace(hidden_by=1), PLAIN).sums == 0  # one microbatch hides them
    assert estimated(WORK, PLAIN._replace(sum_links=0.5)).sums == 1.0
    assert estimated(WORK._replace(chunks=2), PLAIN).idle == 0.5


def test_a_fit_finds_the_parameters_that_made_the_times():
    rows = [row for row in published.rows() if row.cluster in ("1.34B on 8", "3.57B on 16")]
    true = START._replace(products=0.6, sum_links=0.3)
    made = [row._replace(seconds=estimated(row.work, true).seconds) for row in rows]
    again = published.fit(made)
    for row in made:
        assert estimated(row.work, again).seconds == pytest.approx(row.seconds, rel=0.03)


def test_published_steps_of_eight_devices_are_what_the_source_states():
    """39,273 tokens a second on each device: 256 samples of 4,096 tokens on eight."""
    row = next(one for one in published.rows() if one.layout == (8, 1, 1, 0, 1))
    assert row.seconds == pytest.approx(256 * 4096 / 8 / 39273)


@pytest.mark.parametrize("preset", GRIDS)
def test_closed_forms_are_near_simulations(preset):
    """In the median; a search simulates what they leave open."""
    offs = []
    for answer in answers_of(read_grid(PLANS / f"{preset}.json")).values():
        formed = closed_form.answer(answer.question)
        held, its = (max(r.reserved_bytes for r in one.ranks) for one in (answer, formed))
        offs.append(abs(its / held - 1))
    assert sorted(offs)[len(offs) // 2] < 0.1
    assert sorted(offs)[int(0.9 * len(offs))] < 0.3


def test_a_measured_step_corrects_all_estimates_alike():
    cluster = Cluster(1, 8, 989e12, 450e9, 400e9)
    answer = next(iter(answers_of(read_grid(PLANS / "llama-8b.json")).values()))
    slower = answer.estimate(replace(cluster, slower=1.5))
    assert slower.seconds == pytest.approx(1.5 * answer.estimate(cluster).seconds)


def test_a_row_that_cannot_be_read_is_one_line_with_its_place(tmp_path, monkeypatch):
    for suffix in ("yml", "csv"):
        name = f"{published.LIST}.{suffix}"
        text = (published.PLANNER / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace(",36.7\n", ",36.7 GiB\n", 1), encoding="utf-8")
    monkeypatch.setattr(published, "PLANNER", tmp_path)
    with pytest.raises(PlanError, match=r"published_layouts\.csv:2: .*'36\.7 GiB'; a row needs"):
        published.rows()
