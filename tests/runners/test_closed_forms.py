"""Closed forms beside simulations, and the laws of time and of memory that rest on them."""

import random
from collections import Counter
from pathlib import Path
from statistics import mean, median, stdev

import pytest
import yaml

from proofbook.companions.planner.answers import closed_form, device_memory
from proofbook.companions.planner.answers.answer import (
    Layout,
    PlanAnswer,
    answer_of,
    least,
    needs,
)
from proofbook.companions.planner.answers.answer import verdict as answer_verdict
from proofbook.companions.planner.answers.architecture import model_presets
from proofbook.companions.planner.answers.device_memory import least_bytes, needed_bytes, verdict
from proofbook.companions.planner.answers.law_of_time import Bounds, Cluster, bounds
from proofbook.companions.planner.answers.plan_grid import GridRank, read_grid
from proofbook.companions.planner.answers.published import PEAKS, published_bytes_of
from proofbook.companions.planner.answers.question import (
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.companions.planner.simulated.grid import GRIDS, PLANS
from proofbook.companions.planner.simulated.one_rank import simulate_rank
from proofbook.companions.planner.simulated.published_peaks import form_errors, rows_by_run
from proofbook.runners.closed_forms.checkpoint_interval import (
    Costs,
    expected_seconds,
    replay,
)
from proofbook.runners.core.trace.measured import MemoryClasses
from proofbook.runners.simulate.log import AxisCalls
from proofbook.runners.traces.files import read
from tests.runners.questions import asked, changed

SHAPES = {
    name: changed(model_presets()[name].architecture, num_layers=layers)
    for name, layers in {"llama-1b": 4, "llama-8b": 2, "mixtral-8x7b": 2}.items()
}
NEAR, SENT = 0.12, 0.015  # by which memory may differ, and parameters and bytes that are sent
CASES = [  # of which no committed grid has a row: model, strategy, devices, settings
    ("llama-8b", "single", 1, {"loss_chunks": 8, "precision": "fp32"}),
    ("llama-8b", "fsdp.16.8", 16, {}),
    ("llama-8b", "tp.4", 4, {}),
    ("llama-8b", "tp-sp-keep.8", 8, {}),
    ("llama-1b", "interleaved.2", 2, {"global_batch": 2}),
    ("llama-8b", "fsdp.2+cp.4", 8, {"global_batch": 2, "sequence": 32_768}),
    ("mixtral-8x7b", "fsdp.8+ep.8", 8, {}),
    ("mixtral-8x7b", "zero1.16+ep.8", 16, {}),
]


@pytest.mark.parametrize(("model", "strategy", "devices", "settings"), CASES)
def test_each_axis_holds_sends_and_computes_what_its_simulation_does(
    model, strategy, devices, settings
):
    """The last stage of a pipeline stands for the others, since it has the logits."""
    training = {"sequence": 4096, "global_batch": devices, **settings}
    question = asked(strategy, devices, SHAPES[model], **training)
    found = simulate_rank(question, question.ranks[-1])
    assert closed_form_of(question).reserved_bytes == pytest.approx(found.reserved_bytes, rel=NEAR)
    compare(question, found)


def closed_form_of(question):
    return closed_form.answer(question).ranks[-1]


def compare(question, found):
    formed = closed_form_of(question)
    assert formed.flops == pytest.approx(found.flops, rel=0.01)
    assert formed.num_parameters == pytest.approx(found.num_parameters, rel=SENT)
    sent, expected = _bytes(formed), _bytes(found)
    assert sent.keys() == expected.keys()
    if question.training.checkpointing == "selective":
        # In pipelines the closed form has up to a quarter too many: a known miss.
        call = ("reduce_scatter", "tensor")
        assert sent.pop(call, 0) <= 1.25 * expected.pop(call, 0)
    assert sent == pytest.approx(expected, rel=SENT)
    groups = [one.num_communicators(question.num_microbatches) for one in (formed, found)]
    assert groups[0] == groups[1]


def _bytes(rank):
    """Of each collective on each axis; without sums of the loss and of norms, which are small."""
    found, axes = Counter(), Counter()
    for one in rank.calls:
        if one.operation not in ("broadcast", "recv"):
            found[one.operation, one.axis] += one.bytes
            axes[one.axis] += one.bytes
    return {call: size for call, size in found.items() if size > 0.01 * axes[call[1]]}


@pytest.mark.parametrize("preset", GRIDS)
def test_closed_forms_are_near_the_rows_of_committed_grids(preset):
    """No layout is left out because its memory is far too high by them; nor is it too low.

    But for free segments that no block fits into.
    """
    offs, low = list[float](), list[float]()
    grid = read_grid(PLANS / f"{preset}.json")
    for answer in (answer_of(row, grid) for row in grid.rows):
        compare(answer.question, answer.ranks[-1])
        formed = closed_form.answer(answer.question)
        held, its = (max(r.reserved_bytes for r in one.ranks) for one in (answer, formed))
        offs.append(its / held - 1)
        low.append(its / max(rank.allocated_bytes for rank in answer.ranks) - 1)
    assert max(offs) < 0.15
    assert min(low) > -0.05
    assert median(map(abs, offs)) < 0.06


FLOPS = 1e15  # operations of a device in a second


def rank(calls, flops=0):
    classes = MemoryClasses.model_validate(dict.fromkeys(MemoryClasses.model_fields, 0))
    zeros = {n: 0 for n in GridRank.model_fields if n not in ("peak_phase", "at_peak", "calls")}
    return GridRank(**{**zeros, "flops": flops}, peak_phase=None, at_peak=classes, calls=calls)


@pytest.mark.parametrize(
    ("strategy", "mesh", "calls", "within", "between"),
    [
        # Four groups share a node's links.
        ("fsdp.2+tp.4", (2, 4),
         [("all_reduce", 1000, "tensor", 4), ("all_gather", 1000, "data", 2)],
         2 * 1000 * 3 / 4, 1000 / 2 * 4),
        # Of the whole between nodes: 8 shards of 1000.
        ("hsdp.2.8", (2, 8),
         [("all_gather", 8000, "shards", 8), ("all_reduce", 1000, "replicas", 2)],
         8000 * 7 / 8, 2 * 1000 / 2 * 8),
        # A ring over nodes.
        ("ddp", (2, 8), [("all_reduce", 1600, "data", 16)], 2 * 1600 * 7 / 8, 2 * 1600 / 2),
        ("1f1b", (1, 2), [("send", 1000, "pipeline", 2)], 1000, 0),
        ("1f1b", (2, 1), [("send", 1000, "pipeline", 2)], 0, 1000),
        # Each of eight ranks sends its own tokens to the experts of eight others.
        ("fsdp+ep.16", (2, 8), [("all_to_all", 1600, "expert", 16)],
         1600 * 7 / 16, 8 * 1600 * 8 / 16),
    ],
)  # fmt: skip
def test_each_tier_of_links_carries_what_ranks_on_it_send(strategy, mesh, calls, within, between):
    """And no step is shorter than the longest of its parts."""
    cluster = Cluster(*mesh, FLOPS, within=1e9, between=1e6)
    sent = [
        AxisCalls(operation=operation, axis=axis, num_ranks=num, count=1, bytes=size)
        for operation, size, axis, num in calls
    ]
    law = bounds([rank(sent, 10**9)], strategy_of(strategy, cluster.num_devices), cluster)
    assert law.within == pytest.approx(within / 1e9)
    assert law.between == pytest.approx(between / 1e6)
    assert law.computing == 10**9 / FLOPS
    assert law.at_least == max(law.computing, law.within, law.between)


def test_a_layout_dominates_only_where_it_is_worse_in_nothing():
    def of(strategy, computing=0.0, within=1.0, needed_bytes=500):
        cluster = Cluster(1, 8, FLOPS, within=1e9, between=1e9)
        answer = PlanAnswer(question=asked(strategy, devices=8), ranks=[rank([])], seconds=0)
        return Layout(answer, cluster, Bounds(computing, within, 0.0), needed_bytes, "fits")

    usual = of("zero1")
    assert of("zero1", needed_bytes=400).dominates(usual)
    assert not of("zero1", needed_bytes=400, within=1.1).dominates(usual)
    assert not of("zero1", needed_bytes=499).dominates(usual)  # by less than a hundredth
    assert of("zero1", needed_bytes=600, within=0.9).dominates(usual, is_memory_free=True)
    # Where computing decides, the rule does, too.
    assert of("ddp", computing=9.0).dominates(of("zero1", computing=9.0))
    assert not of("fsdp", computing=9.0, needed_bytes=400).dominates(of("zero1", computing=9.0))
    assert of("fsdp", needed_bytes=400).dominates(usual)


CONTENT = Path(__file__).resolve().parents[2] / "content"
GIB = 1 << 30


def test_every_term_is_cited_with_the_same_value():
    references = yaml.safe_load((CONTENT / "references.yml").read_text(encoding="utf-8"))
    cited = {one["id"]: one["value"] for one in references["references"] if "value" in one}
    for name in ("driver", "context", "communicator", "workspace", "h100"):
        assert cited[f"{name}-memory"] == getattr(device_memory, f"{name.upper()}_BYTES")


@pytest.mark.parametrize(("gib", "said"), [(45.5, "fits"), (42, "marginal"), (40.9, "no")])
def test_a_device_fits_is_marginal_or_does_not_fit(gib, said):
    # 1.04 × 42 GiB, and 451 + 534 + 64 MiB and one communicator of 688 MiB: 45.38 GiB.
    assert verdict(gib * GIB, needed_bytes(42 * GIB, 1), least_bytes(40 * GIB)) == said


def test_no_fit_understates_a_published_peak_by_more_than_three_per_cent():
    """The memory that the rule adds for the simulation's error makes up for what is left out."""
    checked = []
    for name, row in read(PEAKS.path).runs.items():
        measures = row.ranks[0].measures
        for kind, measured_bytes in published_bytes_of(row):
            if f"explained_{kind}" in row.settings and f"with_term_{kind}_bytes" not in measures:
                continue  # it misses by what no plan has
            simulated = measures.get(f"with_term_{kind}_bytes") or measures[f"{kind}_bytes"]
            promised = (1 + device_memory.ERROR) * simulated
            assert promised >= 0.97 * measured_bytes, (name, kind)
            checked.append(name)
    assert {"megatron_small_pp4_vp3_ddp", "megatron_small_tp2_sp_cp2_ddp"} <= {*checked}


COSTS = Costs(step_seconds=0.01, checkpoint_seconds=0.05, restart_seconds=3.0, mtbf_seconds=60.0)


def test_failures_at_random_take_on_average_what_the_closed_form_says():
    never = Costs(0.01, 0.05, 3.0, 1e12)
    assert replay(never, 4, 10, seed=0) == pytest.approx(3 * (4 * 0.01 + 0.05))
    taken = mean(replay(COSTS, 100, 10000, seed) for seed in range(400))
    assert taken == pytest.approx(expected_seconds(COSTS, 100, 10000), rel=0.01)


# --- closed forms alone: LoRA, experts beside other axes, and their margin


def formed(shape, strategy="single", devices=1, **how):
    settings = TrainingSettings(**{"sequence": 4096, "global_batch": devices, **how})
    model = PlannedModel(name="x", architecture=shape)
    question = Question(model=model, training=settings, strategy=strategy_of(strategy, devices))
    question.check()
    return closed_form.answer(question).ranks[0]


EIGHT = model_presets()["llama-8b"].architecture


def test_adapters_and_quantized_weights_take_what_their_papers_say():
    """PEFT counts 41,943,040 parameters of rank 16 beside all matrices of Llama 3.1 8B.

    QLoRA: 4 bits, and 0.127 for constants; embedding and logits stay in 16.
    """
    adapters = 41_943_040
    for bits, each in ((16, 2), (8, 1), (4, 0.515875)):
        held = formed(EIGHT, adapter_rank=16, frozen_bits=bits).at_peak
        assert held.optimizer_bytes == 8 * adapters
        ends = 2 * EIGHT.embedding_parameters
        layers = EIGHT.num_parameters - ends
        expected = each * layers + 2 * ends + 6 * adapters
        widest = 2 * 4096 * 14336 * (bits < 16)  # one matrix in 16 bits, to compute with
        assert held.parameters_bytes == pytest.approx(expected + widest, rel=1e-3)
    # A frozen weight needs no gradient of its own: two thirds of the operations of its products.
    half = formed(EIGHT, adapter_rank=16).flops / formed(EIGHT).flops
    assert 2 / 3 < half < 0.72


@pytest.mark.parametrize(
    ("gigabytes", "tokens"), [(16, 2_551), (24, 5_789), (40, 12_264), (48, 15_502), (80, 28_454)]
)
def test_qlora_takes_most_of_a_device_at_the_longest_context_that_was_published_for_it(
    gigabytes, tokens
):
    """Of Transformers with FlashAttention 2, rank 32, in unslothai/unsloth's README at 000252c9.

    It keeps the embedding and the logits in 32 bits, which the closed form does not.
    """
    settings = {"adapter_rank": 32, "frozen_bits": 4, "optimizer": "adam8bit"}
    rank = formed(EIGHT, sequence=tokens, checkpointing="all", **settings)
    outside = device_memory.DRIVER_BYTES + device_memory.CONTEXT_BYTES
    share = (rank.reserved_bytes + outside + 4 * EIGHT.embedding_parameters) / (gigabytes * 1e9)
    assert 0.85 < share < 1.02


def test_experts_are_held_once_among_the_ranks_of_a_stage():
    shape = model_presets()["mixtral-8x7b"].architecture
    experts = shape.num_layers * shape.num_experts * shape.expert_parameters
    others = shape.num_parameters - experts
    for strategy, held in (
        ("zero1.64+ep.8", others + experts / 8),
        ("zero1.32+tp-sp.2+ep.8", others / 2 + experts / 8),
        ("zero1.16+cp.4+ep.8", others + experts / 8),
    ):
        rank = formed(shape, strategy, 64, sequence=32_768)
        assert rank.num_parameters == pytest.approx(held, rel=0.001), strategy
        sent = {call.axis: call for call in rank.calls if call.operation == "reduce_scatter"}
        assert sent["expert_data"].num_ranks == 8
        assert sent["expert_data"].bytes == 2 * experts / 8


def test_frozen_experts_are_held_once_by_all_shards_however_many_ranks_divide_them():
    """Two bytes each in 16 bits; beside them a rank has its share of adapters alone."""
    shape = model_presets()["mixtral-8x7b"].architecture
    for strategy in ("fsdp", "fsdp.8+ep.2", "fsdp.8+ep.8"):
        held = formed(shape, strategy, 8, adapter_rank=16).at_peak.parameters_bytes
        assert held == pytest.approx(2 * shape.num_parameters / 8, rel=0.02), strategy


# Two-sided normal tolerance factor of seven values: 99 % of all, with a confidence of 95 %.
# Source: NIST/SEMATECH e-Handbook of Statistical Methods, 7.2.6.3; Howe's approximation of it.
CHI_SQUARED, NORMAL = 1.635, 2.576  # 5 % of chi-squared with six degrees; 99.5 % of the normal


def test_the_margin_of_closed_forms_follows_from_the_rows_that_were_drawn():
    errors = form_errors()
    assert sorted(random.Random(0).sample(list(errors), 11)) == sorted(device_memory.FITTED)
    cases = {errors[row].case: errors[row].share for row in device_memory.FITTED}
    count = len(cases)
    factor = NORMAL * ((count - 1) * (1 + 1 / count) / CHI_SQUARED) ** 0.5
    highest = mean(cases.values()) + factor * stdev(cases.values())
    assert round(highest, 2) == device_memory.FORM_ERROR
    held_out = [error.share for row, error in errors.items() if row not in device_memory.FITTED]
    assert len(held_out) == 11
    assert max(map(abs, held_out)) <= device_memory.FORM_ERROR


def test_a_layout_within_the_margin_is_neither_said_to_fit_nor_refused():
    question = asked("single", 1, EIGHT, sequence=4096, global_batch=1)
    answer = closed_form.answer(question)
    (rank,) = answer.ranks
    outside = needs(answer) - round((1 + device_memory.FORM_ERROR) * rank.reserved_bytes)
    assert 1 < outside / (1 << 30) < 1.1  # driver, CUDA context, workspaces
    states = 16 * EIGHT.num_parameters  # which are exact, unlike all else
    at_least = states + 0.78 * (rank.reserved_bytes - states)
    for bytes_, said in (
        (1.13 * rank.reserved_bytes, "fits"),
        (1.1 * rank.reserved_bytes, "marginal"),
        (1.01 * at_least, "marginal"),
        (0.98 * at_least, "no"),
    ):
        assert answer_verdict(answer, bytes_ + outside) == said


def test_no_published_peak_is_below_what_closed_forms_take_at_the_least():
    checked = []
    for name, row in rows_by_run().items():
        answer = closed_form.answer(row.question)
        last = answer.model_copy(update={"ranks": answer.ranks[-1:]})
        for peak in (one for one in row.measured if one.moment == "peak"):
            formed = least(last if peak.rank == "last" else answer) - least_bytes(0)
            assert formed <= peak.bytes, (name, peak.kind)
            checked.append(name)
    assert len(checked) > 80


def test_tokens_travel_to_experts_as_ranks_that_ran_sent_them():
    trace = read(Path("content/traces/reference-cpu-2c/experts.json"))
    for name in ("even", "many_tokens"):
        run = trace.runs[name]
        settings = run.settings
        shape = changed(
            SHAPES["mixtral-8x7b"], num_layers=1, hidden_size=settings["width"],
            num_experts=settings["num_experts"], num_active_experts=settings["num_chosen"],
        )  # fmt: skip
        question = asked(
            f"fsdp.{run.world_size}+ep.{run.world_size}", run.world_size, shape,
            sequence=settings["num_tokens"], global_batch=run.world_size, precision="fp32",
        )  # fmt: skip
        calls = closed_form.answer(question).ranks[0].calls
        (planned,) = (call.bytes for call in calls if call.axis == "expert")
        counts = 8 * settings["num_experts"]
        assert run.ranks[0].measures["travelled_bytes"] == planned + counts
