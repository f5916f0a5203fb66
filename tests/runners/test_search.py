"""What to try first: what is searched, in which order, and what is said of it."""

from itertools import product

import pytest

from proofbook.companions.planner.answers import closed_form
from proofbook.companions.planner.answers.answer import GIB, layout_of, layouts
from proofbook.companions.planner.answers.architecture import model_presets
from proofbook.companions.planner.answers.how_many import changes_that_fit, least_devices
from proofbook.companions.planner.answers.law_of_time import Cluster
from proofbook.companions.planner.answers.order import KNOWN_TO, RECOMPUTATION
from proofbook.companions.planner.answers.question import (
    PlanError,
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.companions.planner.answers.search import (
    TO_MEASURE,
    choice_lines,
    shortlist,
    strategies,
    to_measure,
    valid_strategies,
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


def test_the_sending_of_every_axis_has_to_be_hidden():
    """Tensor-parallel ranks over slow links, without any reduction of gradients."""
    question, slow = single("llama-8b", global_batch=8), Cluster(1, 8, RATES[0], 25e9, 25e9)
    whole = on(question, "tp-sp", slow)
    assert whole.bounds.within > whole.bounds.computing
    assert not whole.is_hidden
    again = on(question, "fsdp", slow, checkpointing="all", global_batch=64)
    assert not again.priority.is_stalled or again.bounds.sending > again.bounds.computing
    assert whole.priority.is_stalled
    assert on(question, "1f1b", slow, checkpointing="all").priority < whole.priority


def test_a_pipeline_with_fewer_microbatches_than_ranks_comes_last_and_is_told_what_gives_more():
    """A step of two equal stages with one microbatch takes twice its work: half of it is idle."""
    question, cluster = single("llama-13b", global_batch=16), Cluster(1, 8, *RATES)
    whole, starved = (
        on(question, name, cluster, microbatch=size)
        for name, size in (("fsdp", 1), ("1f1b.2+zero1.4", 4))
    )
    again = on(question, "fsdp", cluster, checkpointing="all")
    assert starved.bounds.computing > 1.9 * whole.bounds.computing
    assert whole.priority < again.priority < starved.priority
    lines = choice_lines([starved], 80 * GIB)
    idle = "  1 microbatch: at most 1 of the 2 ranks of the pipeline computes at once; "
    assert f"{idle}--microbatch 2 gives each rank one" in lines
    enough = on(question, "1f1b.2+zero1.4", cluster, microbatch=2)
    assert not enough.priority.is_stalled
    single_sample = on(question, "1f1b.4+zero1.2", cluster, microbatch=2, global_batch=4)
    lines = choice_lines([single_sample], 80 * GIB)
    assert any(line.endswith("--global-batch 16 gives each rank one") for line in lines)


def test_no_device_trains_more_tokens_in_a_second_than_its_rate_allows():
    """Six operations for each weight and token, and those of attention, at the highest rate."""
    question, cluster = single("llama-13b", global_batch=16), Cluster(1, 8, *RATES)
    (line,) = (line for line in choice_lines([on(question, "fsdp", cluster)], GIB)
               if "tokens a second" in line)  # fmt: skip
    rate = float(line.partition("at most ")[2].split()[0].replace(",", ""))
    shape = question.model.architecture
    weights = 6 * (shape.num_parameters - shape.embedding_parameters)
    attention = 6 * shape.num_layers * shape.hidden_size * 4096
    assert rate == pytest.approx(RATES[0] / (weights + attention), rel=0.02)


# --- the search


def test_the_first_layout_is_that_of_a_search_of_everything():
    """Less recomputation, and fewer stages on a rank, come first, and spare the rest."""
    question, cluster = single("llama-13b", global_batch=16), Cluster(2, 8, *RATES)
    for memory in (80, 40, 24):
        listed = shortlist(question, cluster, memory * GIB)
        every = [
            layout
            for how in RECOMPUTATION
            for strategy in valid_strategies(
                question, strategies(cluster, question.model.architecture)
            )
            for layout in shortlist(
                question.model_copy(update={"training": question.training.model_copy(
                    update={"checkpointing": how})}), cluster, memory * GIB, [strategy]
            ).fitting
        ]  # fmt: skip
        assert listed.fitting[0].priority == min(layout.priority for layout in every)


@pytest.mark.parametrize(
    ("name", "cluster", "memory", "sequence"),
    [
        ("mixtral-8x7b", (2, 8), 80, 4096),  # fits with recomputation
        ("llama-13b", (1, 8), 40, 4096),
        ("llama-8b", (1, 8), 80, 131_072),  # fits if ranks divide a sample
        ("deepseek-v3", (32, 8), 80, 4096),  # fits if ranks divide the experts
    ],
)
def test_what_fits_is_found_however_little_it_is(name, cluster, memory, sequence):
    devices = Cluster(*cluster, *RATES)
    question = single(name, sequence=sequence, global_batch=devices.num_devices)
    listed = shortlist(question, devices, memory * GIB)
    assert len({layout.strategy for layout in listed.fitting}) >= TO_MEASURE
    assert {layout.verdict for layout in listed.fitting} == {"fits"}


def test_a_mixture_is_searched_with_experts_beside_every_axis():
    shape = model_presets()["mixtral-8x7b"].architecture
    found = {one.name for one in strategies(Cluster(8, 8, *RATES), shape, 8192)}
    assert {
        "zero1.64+ep.8", "fsdp.8+tp-sp.8+ep.8", "1f1b.4+zero1.16+ep.8",
        "interleaved.4.8+zero1.16+ep.8", "zero1.32+cp.2+ep.8",
    } <= found  # fmt: skip
    assert not any("cp" in one.name for one in strategies(Cluster(8, 8, *RATES), shape, 4096))


def test_what_needs_far_too_much_is_not_listed_and_the_least_is_known():
    listed = shortlist(single("llama-70b", global_batch=8), Cluster(1, 8, *RATES), 80 * GIB)
    assert not listed.fitting
    assert not listed.marginal
    assert listed.smallest[0].needed_bytes > 80 * GIB
    assert listed.smallest[0].answer.question.training.checkpointing == "all"


def test_a_batch_that_no_strategy_divides_is_refused():
    with pytest.raises(PlanError, match="do not divide a global batch of 3"):
        shortlist(single("llama-8b", global_batch=3), Cluster(1, 8, *RATES), 8 * GIB,
                  [strategy_of("fsdp", 8)])  # fmt: skip


@pytest.mark.parametrize("devices", [KNOWN_TO, 2 * KNOWN_TO])
def test_beyond_the_size_for_which_the_order_is_known_none_is_said(devices):
    cluster, names = Cluster(devices // 8, 8, *RATES), ("fsdp", "zero1", "ddp-view", "fsdp-keep")
    formed = by_forms([asked(name, devices, global_batch=devices) for name in names])
    fitting = layouts(formed, cluster, 80 * GIB)
    measured = to_measure(fitting)
    assert {one.strategy for one in measured} == {"ddp-view", "zero1", "fsdp-keep"}
    if devices == KNOWN_TO:
        heads = ["try first:", "measure beside it:", "measure beside it:"]
        assert [one.strategy for one in measured] == ["ddp-view", "zero1", "fsdp-keep"]
    else:
        heads = ["measure:"] * 3
        assert measured == sorted(measured, key=lambda one: one.needed_bytes)
    lines = choice_lines(fitting, 80 * GIB)
    for head, one in zip(heads, measured, strict=True):
        assert f"{head:<19}{one.strategy}, microbatch 1" in lines


def test_for_one_device_no_cluster_is_named():
    listed = shortlist(single("gpt2-124m", sequence=1024), Cluster(1, 1, *RATES), 80 * GIB)
    lines = choice_lines(listed.fitting, 80 * GIB)
    assert lines[0] == f"{'try first:':<19}single, microbatch 1"
    assert not any("cluster" in line for line in lines)


# --- how many devices, and what would turn a no


def test_fewer_devices_than_the_smallest_number_do_not_fit():
    node, memory = Cluster(1, 8, *RATES), 80 * GIB
    found = least_devices(single("llama-13b"), node, memory)
    assert [one.cluster.num_devices for one in found] == sorted(
        one.cluster.num_devices for one in found
    )
    assert {one.verdict for one in found} == {"fits"}
    alone = [one for one in found if one.strategy in ("zero1", "fsdp", "tp-sp")]
    assert alone
    for one, how in product(alone, ("none", "selective", "all")):
        number = one.cluster.num_devices
        number = number // 2 if one.strategy == "tp-sp" else number - (1 if number <= 8 else 8)
        fewer = node.with_devices(number)
        question = single("llama-13b", global_batch=number)
        less = on(question, one.strategy, fewer, checkpointing=how)
        assert layout_of(less.answer, fewer, memory).verdict != "fits"


def test_numbers_between_powers_of_two_are_tried():
    """Of states alone, two devices have 60 GiB each for 8 B parameters, and 16 have 66 for 70 B."""
    for name, strategy, fewest in (("llama-8b", "fsdp", 3), ("llama-70b", "fsdp.3+tp-sp.8", 24)):
        found = least_devices(single(name), Cluster(1, 8, *RATES), 80 * GIB)
        assert {one.strategy: one.cluster.num_devices for one in found}[strategy] == fewest


def changes_of(question, cluster, memory):
    return changes_that_fit(
        question, cluster, memory, shortlist(question, cluster, memory).smallest
    )


def test_a_microbatch_that_is_too_large_is_told_first():
    """Alone where that is enough; nobody shortens samples to keep a microbatch."""
    small, one = Cluster(1, 1, *RATES), {"microbatch": 8, "global_batch": 8}
    (line,) = changes_of(single("llama-1b", **one), small, 40 * GIB)
    assert line.startswith("--microbatch 1: single, microbatch 1")
    said = changes_of(single("llama-1b", **one), small, 20 * GIB)
    assert all(line.startswith("--microbatch 1 --") for line in said)


def test_a_setting_that_turns_a_no_is_named():
    said = changes_of(single("llama-70b", global_batch=8), Cluster(1, 8, *RATES), 80 * GIB)
    assert any(line.startswith("--precision bf16: ") for line in said)
    consumer = Cluster(1, 1, 165e12, 32e9, 25e9)
    said = changes_of(single("llama-8b"), consumer, 24 * GIB)
    assert [line.partition(":")[0] for line in said] == ["--lora 16 --frozen-bits 4"]
