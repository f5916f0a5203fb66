"""Plans beside real ranks over gloo: every layout that is planned needs there what its plan says.

Tensor bytes are compared, since a device's allocator rounds them up and a CPU's does not report
them. `planned_ranks.py` says what trains there.
"""

import json
from collections import Counter
from itertools import chain, combinations_with_replacement

import pytest

from proofbook.companions.planner.answers.law_of_time import Cluster
from proofbook.companions.planner.answers.question import (
    _AXES,
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.companions.planner.answers.search import strategies
from proofbook.companions.planner.simulated import grid, one_rank
from proofbook.companions.planner.simulated.one_rank import simulate_rank
from proofbook.companions.planner.simulated.step import Step
from proofbook.runners.__main__ import main
from tests.judged import judged, peaks_of
from tests.runners.planned_ranks import (
    MICROBATCH,
    NUM_MICROBATCHES,
    ScheduledStep,
    attention_of_context_ranks,
    needed,
    trained,
)
from tests.runners.questions import LLAMA, asked, changed, simulated
from tests.runners.wrapped import GlooMeter


@pytest.fixture(autouse=True)
def _ranks_communicate_over_gloo(monkeypatch):
    monkeypatch.setattr(one_rank, "Meter", GlooMeter)


OWN = "tests.runners.planned_ranks"
STRATEGIES = ["ddp", "zero1", "fsdp", "tp"]
RANKS = 2
TOLERANCE = 0.01  # relative, of a peak


@pytest.mark.ranks
def test_real_ranks_peak_where_the_plan_says():
    batch = {"microbatch": MICROBATCH, "global_batch": MICROBATCH * NUM_MICROBATCHES * RANKS}
    names = {"module": "Residuals", "batch": "batch", "tensor_plan": "tensor_plan"}
    model = PlannedModel(name="own", **{field: f"{OWN}:{name}" for field, name in names.items()})
    training = TrainingSettings(sequence=1, precision="fp32", **batch)
    questions = [
        Question(model=model, training=training, strategy=strategy_of(name, RANKS))
        for name in STRATEGIES
    ]
    peaks = {
        (name, rank): simulate_rank(one, rank).peak_bytes
        for name, one in zip(STRATEGIES, questions, strict=True)
        for rank in one.ranks
    }
    real = {name: peaks_of(judged(trained, RANKS, name)) for name in STRATEGIES}
    assert peaks == {
        (name, rank): pytest.approx(real[name][rank], rel=TOLERANCE) for name, rank in peaks
    }


@pytest.mark.builds
def test_a_search_for_a_model_of_ones_own_tries_what_needs_no_further_function(capsys):
    words = ["plan", "for", f"{OWN}:Residuals", "--batch", f"{OWN}:batch", "--json"]
    words += ["--sequence", "1", "--devices", "2", "--microbatch", "2", "--precision", "fp32"]
    assert main(words) == 0
    found = {one["question"]["strategy"]["name"] for one in json.loads(capsys.readouterr().out)}
    assert found == {"ddp-view", "zero1", "fsdp", "fsdp-keep"}


# --- every layout, on ranks that take the planned step with values

# Each word of a layout, and each pair of words, that a plan, a search or the committed grid has is
# in one of these or of `STRATEGIES`.
LAYOUTS = {
    "ddp-view": 2,
    "tp-sp-keep": 2,
    "fsdp.4.2": 4,
    "fsdp.2+cp.2": 4,
    "fsdp.4+ep.2": 4,
    "zero1.4+ep.2": 4,
    "fsdp.2+tp-sp.2": 4,
    "1f1b.2+fsdp.2": 4,
    "interleaved.2+fsdp-keep.2": 4,
    "gpipe.2+tp-sp.2": 4,
    "interleaved.2+zero1.2+tp-sp.2": 8,
    "hsdp.2.2+tp-sp.2": 8,
    "1f1b.2+zero1.2+tp-sp.2": 8,
    "1f1b.2+zero1.2+ep.2": 4,
}

# Pairs that `make soak` runs, and what takes eight ranks: of most words, the gate has others.
AT_SOAK = (
    "hsdp.2.2+tp-sp.2", "zero1.4+ep.2", "gpipe.2+tp-sp.2", "interleaved.2+zero1.2+tp-sp.2",
    "1f1b.2+zero1.2+tp-sp.2", "1f1b.2+fsdp.2", "1f1b.2+zero1.2+ep.2", "fsdp.4.2",
)  # fmt: skip


def question_of(layout):
    """Two microbatches or more on each rank, in bf16 beside fp32 copies."""
    strategy, shape = strategy_of(layout, LAYOUTS[layout]), {}
    if strategy.pipeline > 1:  # whose ends sum the gradient of their embedding
        shape = {"num_layers": strategy.num_stages, "has_tied_embeddings": True}
    if strategy.pipeline > 1 and strategy.sharding.startswith("fsdp"):
        shape = {"num_layers": 4, "hidden_size": 128, "ffn_size": 512}
    if strategy.expert > 1:
        shape |= {"num_experts": 4, "num_active_experts": 2}
    batch = {"microbatch": 2, "global_batch": 4 * strategy.data}
    return asked(layout, LAYOUTS[layout], changed(LLAMA, **shape), **batch)


@pytest.mark.ranks
@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one not in AT_SOAK])
def test_real_ranks_need_and_send_what_the_simulation_of_their_layout_says(layout):
    """FSDP in a pipeline runs in a schedule of torch's."""
    question = question_of(layout)
    strategy = question.strategy
    is_scheduled = strategy.pipeline > 1 and question.has_fsdp
    found = judged(needed, LAYOUTS[layout], question, ScheduledStep if is_scheduled else Step)
    stage = len(found) // strategy.pipeline
    plans = [simulate_rank(question, rank) for rank in question.ranks]
    for plan in plans:
        peaks = peaks_of(found[plan.rank : plan.rank + stage])
        assert peaks == pytest.approx([plan.peak_bytes] * stage, rel=TOLERANCE)
    sent = Counter()
    for call in plans[0].calls:
        sent[call.operation] += call.bytes
    # The reducer broadcasts the sizes of its buckets, and of what ring attention gathers a meter of
    # real ranks sees the part that a rank gives.
    apart = {"broadcast", "all_gather"} if strategy.context > 1 else {"broadcast"}
    assert {k: v for k, v in found[0].returned.items() if k not in apart} == {
        k: v for k, v in sent.items() if k not in apart
    }


@pytest.mark.ranks
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_planned_context_ranks_in_head_tail_order_attend_as_one_process_does(num_ranks):
    for rank in judged(attention_of_context_ranks, num_ranks):
        assert rank.returned == pytest.approx([0] * 4, abs=1e-5)


def test_a_pipeline_that_reduces_the_gradients_of_each_microbatch_needs_less():
    deep = changed(LLAMA, num_layers=8, hidden_size=128, ffn_size=512)
    usual, each = (
        simulated("1f1b.2+fsdp.2", 4, deep, reduces_each=one).peak_bytes for one in (None, True)
    )
    assert each < usual


def pairs(layout):
    """The words of a layout, without sizes, by twos; each also with itself."""
    words = []
    for word in layout.split("+"):
        name, *sizes = word.split(".")
        words.append(f"{name} resharded" if name == "fsdp" and len(sizes) > 1 else name)
    return set(combinations_with_replacement(sorted(words), 2))


def test_every_layout_that_is_planned_has_run_on_ranks():
    nodes = [Cluster(nodes, 8, 1.0, 1.0, 1.0) for nodes in (1, 2)]
    searched = [one.name for cluster in nodes for one in strategies(cluster)]
    committed = chain(*grid.STRATEGIES.values(), *grid.NAMED.values())
    named = (name for plan in grid.GRIDS.values() for name, _ in plan.named)
    known = {pair for one in [*STRATEGIES, *LAYOUTS] for pair in pairs(one)}
    planned = {one: pairs(one) for one in (*_AXES, *searched, *committed, *named)}
    assert {one for one, of_it in planned.items() if not of_it <= known} == {"single"}
