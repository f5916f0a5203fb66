"""What to try first: what is searched, in which order, and what is said of it."""

from itertools import product

import pytest

from proofbook.runners.planner.answers import closed_form
from proofbook.runners.planner.answers.answer import GIB, PlanAnswer, layout_of, layouts
from proofbook.runners.planner.answers.architecture import model_presets
from proofbook.runners.planner.answers.how_many import changes_that_fit, least_devices
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.order import KNOWN_TO
from proofbook.runners.planner.answers.question import (
    PlanError,
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.runners.planner.answers.search import (
    MOST,
    SLACK,
    SearchResult,
    choice_lines,
    choose,
    no_fit_error,
    search,
    shortlist,
)
from tests.runners.questions import asked, by_forms

RATES = (989e12, 450e9, 400e9)  # of an H100


def single(name, **training):
    model = PlannedModel(name=name, architecture=model_presets()[name].architecture)
    settings = TrainingSettings(**{"sequence": 4096, **training})
    return Question(model=model, training=settings, strategy=strategy_of("single", 1))


def on(question, strategy, cluster, **training):
    """A layout by closed forms, on a device of 80 GiB."""
    settings = question.training.model_copy(update=training)
    named = strategy_of(strategy, cluster.num_devices)
    changed = question.model_copy(update={"training": settings, "strategy": named})
    return layout_of(closed_form.answer(changed), cluster, 80 * GIB)


def searched(question, cluster, memory, simulate=by_forms):
    memory *= GIB
    return search(shortlist(question, cluster, memory), cluster, memory, simulate)


def refused(found, cluster, memory):
    with pytest.raises(PlanError) as raised:
        choose(found.answers, cluster, memory)
    return str(no_fit_error(found, raised.value, memory))


# --- the rule


@pytest.mark.parametrize(
    ("first", "later", "settings"),
    [
        ("zero1", "zero1", ({}, {"checkpointing": "selective"})),
        ("fsdp", "fsdp", ({"checkpointing": "selective"}, {"checkpointing": "all"})),
        ("ddp-view", "zero1", ({}, {})),
        ("zero1", "fsdp", ({}, {})),
        ("hsdp.2.8", "fsdp", ({}, {})),
        ("fsdp", "fsdp.8+tp-sp.2", ({}, {})),
        ("fsdp.8+tp-sp.2", "fsdp.4+tp-sp.4", ({}, {})),
        ("fsdp.2+tp-sp.8", "1f1b.2+zero1.8", ({}, {})),
        ("1f1b.2+zero1.8", "fsdp.8+cp.2", ({}, {})),
        ("fsdp", "fsdp", ({"microbatch": 2}, {"microbatch": 1})),
        ("1f1b.2+tp-sp.8", "tp-sp", ({}, {})),  # whose ranks lie on two nodes
    ],
)
def test_of_two_layouts_the_simpler_one_comes_first(first, later, settings):
    cluster = Cluster(2, 8, *RATES)
    question = single("llama-8b", sequence=32768, global_batch=64)
    one, other = (
        on(question, name, cluster, **changed)
        for name, changed in zip((first, later), settings, strict=True)
    )
    assert one.priority < other.priority


def test_what_computing_does_not_hide_comes_after_what_it_hides():
    """FSDP gathers for each microbatch; stages with ZeRO-1 send gradients once a step."""
    question = single("llama-8b", global_batch=512)
    fast, slow = Cluster(8, 8, *RATES), Cluster(8, 8, RATES[0], RATES[1], 100e9)
    for cluster, is_hidden in ((fast, True), (slow, False)):
        flat = on(question, "fsdp", cluster)
        assert flat.is_hidden == is_hidden
        staged = on(question, "1f1b.8+zero1.8", cluster)
        assert staged.is_hidden
        assert (flat.priority < staged.priority) == is_hidden
    assert on(question, "fsdp", fast).seconds_of_data(is_flat=True) == pytest.approx(
        8 * on(question, "fsdp", fast).seconds_of_data(), rel=0.2
    )


# --- the search


def test_a_search_ends_once_three_strategies_fit_and_the_rule_comes_first():
    rounds = []

    def simulate(some):
        rounds.append(len(some))
        return by_forms(some)

    cluster, question = Cluster(2, 8, *RATES), single("llama-8b", global_batch=16)
    found = searched(question, cluster, 80, simulate)
    assert sum(rounds) < MOST
    assert searched(question, cluster, 80) == found
    made = choose(found.answers, cluster, 80 * GIB)
    assert len({one.strategy for one in made.measured}) == 3
    every, _ = shortlist(question, cluster, 80 * GIB)
    first = next(one for one in every if one.verdict == "fits")
    assert made.measured[0].answer.question == first.answer.question


@pytest.mark.parametrize(
    ("name", "cluster", "memory", "sequence"),
    [
        ("mixtral-8x7b", (2, 8), 80, 4096),  # fits with recomputation
        ("llama-13b", (1, 8), 40, 4096),
        ("llama-8b", (1, 8), 80, 131_072),  # fits if ranks divide a sample
    ],
)
def test_what_fits_by_closed_forms_is_found_however_little_it_is(name, cluster, memory, sequence):
    devices = Cluster(*cluster, *RATES)
    question = single(name, sequence=sequence, global_batch=devices.num_devices)
    found = searched(question, devices, memory)
    assert layouts(found.answers, devices, memory * GIB)


def test_more_layouts_than_a_search_simulates_are_no_proof_that_none_fits():
    """A simulation finds that each needs twice what the closed forms say."""

    def simulate(some):
        answers = by_forms(some)
        for answer in answers:
            answer.ranks[:] = [
                rank.model_copy(update={"reserved_bytes": 2 * rank.reserved_bytes})
                for rank in answer.ranks
            ]
        return answers

    cluster = Cluster(1, 8, *RATES)
    found = searched(single("llama-8b", global_batch=8), cluster, 18, simulate)
    said = refused(found, cluster, 18 * GIB)
    assert said.startswith("no answer yet" if found.num_left else "no layout fits")
    assert found.num_left or len(found.answers) < MOST


def test_what_needs_far_too_much_is_refused_without_a_simulation():
    cluster = Cluster(1, 8, *RATES)
    found = searched(single("llama-70b", global_batch=8), cluster, 80)
    assert not found.answers
    assert refused(found, cluster, 80 * GIB).startswith("no layout fits 80 GiB; ")
    assert min(one.needed_bytes for one in found.over) > SLACK * 80 * GIB


def test_where_no_state_fits_the_reason_is_said():
    unfit = PlanAnswer(question=asked("ddp"), seconds=0, reason="the optimizer alone needs more")
    with pytest.raises(PlanError, match=r"^the optimizer alone needs more"):
        choose([unfit], Cluster(2, 2, *RATES), GIB)


@pytest.mark.parametrize("devices", [KNOWN_TO, 2 * KNOWN_TO])
def test_beyond_the_size_for_which_the_order_is_known_none_is_said(devices):
    cluster, names = Cluster(devices // 8, 8, *RATES), ("fsdp", "zero1", "ddp-view", "fsdp-keep")
    formed = by_forms([asked(name, devices, global_batch=devices) for name in names])
    made = choose(formed, cluster, 80 * GIB)
    assert made.is_ordered == (devices == KNOWN_TO)
    if made.is_ordered:
        heads = ["try first:", "measure beside it:", "measure beside it:"]
        assert [one.strategy for one in made.measured] == ["ddp-view", "zero1", "fsdp-keep"]
        assert made.fitting == layouts(formed, cluster, 80 * GIB)
    else:
        heads = ["measure:"] * 3
        assert made.fitting == sorted(made.fitting, key=lambda one: one.needed_bytes)
    found = SearchResult(formed, num_left=7, over=[])
    lines = choice_lines(made, found, 80 * GIB, lambda one: f"write {one.name}")
    for head, one in zip(heads, made.measured, strict=True):
        assert f"{head:<19}{one.strategy}, microbatch 1" in lines
        assert f"  write {one.name}" in lines
    assert lines[-1] == "tried:             4 layouts simulated; 7 others not simulated"


# --- how many devices, and what would turn a no


def test_fewer_devices_than_the_smallest_number_do_not_fit():
    node, memory = Cluster(1, 8, *RATES), 80 * GIB
    found = least_devices(single("llama-13b"), node, memory, by_forms)
    assert [one.devices for one in found] == sorted(one.devices for one in found)
    assert {one.layout.verdict for one in found} == {"fits"}
    alone = [one for one in found if one.layout.strategy in ("zero1", "fsdp", "tp-sp")]
    assert alone
    for one, how in product(alone, ("none", "selective", "all")):
        half = node.with_devices(one.devices // 2)
        question = single("llama-13b", global_batch=one.devices)
        less = on(question, one.layout.strategy, half, checkpointing=how)
        assert layout_of(less.answer, half, memory).verdict != "fits"


def test_a_setting_that_turns_a_no_is_named_and_was_simulated():
    simulated = []

    def simulate(some):
        simulated.extend(some)
        return by_forms(some)

    question = single("llama-70b", global_batch=8)
    said = list(changes_that_fit(question, Cluster(1, 8, *RATES), 80 * GIB, simulate))
    assert any(line.startswith("--precision bf16: ") for line in said)
    assert len(simulated) >= len(said)
