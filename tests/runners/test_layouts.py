"""What sequence parallelism keeps, and what a schedule with several stages of a rank holds."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from proofbook.runners.planner.simulated import one_rank
from proofbook.runners.planner.simulated.axes import TensorAxis
from proofbook.runners.planner.simulated.one_rank import simulate_rank
from proofbook.runners.planner.simulated.step import BACKWARD, FORWARD, Repeats, turns
from tests.runners.questions import GPT, asked, changed

HIDDEN, LENGTH, MICROBATCH = 512, 256, 2
WIDE = changed(GPT, hidden_size=HIDDEN, ffn_size=4 * HIDDEN, vocabulary=64, context_length=LENGTH)


def deep(strategy, devices, num_layers=4, num_microbatches=1):
    batch = {"microbatch": MICROBATCH, "global_batch": MICROBATCH * num_microbatches}
    return asked(strategy, devices, changed(WIDE, num_layers=num_layers), **batch)


def bytes_of_a_layer(strategy, ranks):
    """Of activations, as the peaks of two depths differ by, for each `s b h`."""
    peaks = [
        simulate_rank(deep(strategy, ranks, depth), 0).at_peak.activations_bytes for depth in (1, 2)
    ]
    return (peaks[1] - peaks[0]) / (LENGTH * MICROBATCH * HIDDEN)


def test_a_rank_of_sequence_parallelism_keeps_what_korthikanti_et_al_count():
    ranks = 4
    # 34 s b h / t with dropout, whose two masks are 2 of it (arXiv 2205.05198, section 4.2.2).
    assert bytes_of_a_layer("tp-sp", ranks) == pytest.approx(32 / ranks, rel=0.01)
    # Torch keeps the inputs of two products whole: 4 of the 32.
    assert bytes_of_a_layer("tp-sp-keep", ranks) == pytest.approx(28 / ranks + 4, rel=0.01)
    # Without sequence parallelism 10 of the 34 are whole, 2 of them masks.
    assert bytes_of_a_layer("tp", ranks) == pytest.approx(24 / ranks + 8, rel=0.01)


class TwoEqualRanks(TensorAxis):
    """Both ranks have the same part of the sequence, so that one process can be both."""

    def gathered(self, x):
        return torch.cat([x, x], 1)

    def scattered(self, x):
        return sum(x.chunk(2, 1))


def test_products_of_a_gathered_sequence_have_the_gradients_of_plain_autograd():
    torch.manual_seed(0)
    x, *weights = (torch.randn(n, requires_grad=True) for n in ((2, 3, 8), (5, 8), (6, 8)))
    biases = [torch.randn(5, requires_grad=True), None]
    axis = TwoEqualRanks(None, 2, has_sequence_parallel=True)
    layers = [SimpleNamespace(weight=w, bias=b) for w, b in zip(weights, biases, strict=True)]
    given = axis.products(x, *layers)
    whole = torch.cat([x, x], 1)
    plain = [torch.nn.functional.linear(whole, *pair) for pair in zip(weights, biases, strict=True)]
    ups = [torch.randn_like(one) for one in plain]
    leaves = [x, *weights, biases[0]]
    gradients = [torch.autograd.grad(one, leaves, ups) for one in (given, plain)]
    torch.testing.assert_close(*gradients)


def most_in_flight(question, rank):
    """Microbatches of a stage whose activations a rank holds at once, at most."""
    held, most = 0, 0
    for turn in turns(question, rank, question.num_microbatches):
        held += (turn.kind == FORWARD) - (turn.kind == BACKWARD)
        most = max(most, held)
    return most


def interleaved(ranks, chunks, num_layers, num):
    question = deep(f"interleaved.{ranks}", ranks, num_layers, num)
    strategy = question.strategy.model_copy(update={"chunks": chunks})
    return question.model_copy(update={"strategy": strategy})


@pytest.mark.parametrize(("ranks", "chunks", "num"), [(4, 2, 8), (4, 3, 16), (2, 4, 8)])
def test_interleaved_ranks_hold_as_many_microbatches_as_megatron_lm_warms_up(ranks, chunks, num):
    question = interleaved(ranks, chunks, ranks * chunks, num)
    for rank in range(ranks):
        # get_pp_rank_microbatches of megatron/core/pipeline_parallel/schedules.py, and the forward
        # pass before the first backward pass.
        warm_up = (chunks - 1) * ranks + 2 * (ranks - rank - 1)
        assert most_in_flight(question, rank) == warm_up + 1


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_every_microbatch_passes_every_stage_once_and_sends_what_it_passes(schedule):
    given = schedule == "interleaved"
    question = interleaved(2, 3, 6, 4) if given else deep(schedule, 2, 2, 4)
    each = {(stage, index) for stage in range(question.strategy.num_stages) for index in range(4)}
    for kind in (FORWARD, BACKWARD):
        passed = Counter(
            (question.strategy.stages_of(rank)[turn.chunk], turn.microbatch)
            for rank in range(2)
            for turn in turns(question, rank, 4)
            if turn.kind == kind
        )
        assert passed == dict.fromkeys(each, 1)
    sent = sum(
        call.bytes
        for rank in (0, 1)
        for call in simulate_rank(question, rank).calls
        if call.operation == "send"
    )
    # At each boundary of stages, forward and backward, in bf16.
    boundaries = question.strategy.num_stages - 1
    assert sent == 2 * boundaries * 4 * LENGTH * MICROBATCH * HIDDEN * 2


def test_a_few_microbatches_reach_the_peak_of_all(monkeypatch):
    question = deep("interleaved.2", 2, 4, 8)
    few = simulate_rank(question, 0)
    monkeypatch.setattr(one_rank, "repeats", lambda _: Repeats(8, 8))
    whole = simulate_rank(question, 0)
    assert (few.flops, few.calls) == (whole.flops, whole.calls)
    assert few.peak_bytes == pytest.approx(whole.peak_bytes, rel=1e-4)
