"""The transformer that plans simulate, against the closed form, torch and its tracker."""

from collections import Counter

import pytest
import torch

from proofbook.companions.planner.answers.question import TrainingSettings
from proofbook.companions.planner.simulated import one_rank
from proofbook.companions.planner.simulated.fused_kernels import (
    attention,
    attention_backward,
    rms_norm,
)
from proofbook.companions.planner.simulated.layers import RankPlan
from proofbook.companions.planner.simulated.one_rank import simulate_rank
from proofbook.companions.planner.simulated.step import BACKWARD, FORWARD, Repeats, turns
from proofbook.companions.planner.simulated.transformer import RankTransformer
from tests.runners.questions import GPT, LLAMA, asked, changed, tracked_peak

TINY = changed(LLAMA, num_kv_heads=2)
SHAPES = [
    TINY,
    GPT,
    *(
        changed(TINY, **change)
        for change in (
            {"has_query_key_norm": True, "head_dim": 32, "has_tied_embeddings": True},
            {"has_fused_inputs": True, "rotary_size": 8, "has_qkv_bias": True},
            {"norm_places": "after", "has_query_key_norm": True, "has_wide_query_key_norm": True},
            {"norm_places": "both", "activation": "geglu", "window": 8, "whole_step": 2},
            {"has_sinks": True, "window": 8, "activation": "clamped_swiglu", "has_ffn_bias": True,
             "num_experts": 4, "num_active_experts": 2},
            {"kv_rank": 16, "query_rank": 24, "head_dim": 24, "rotary_size": 8, "value_dim": 12,
             "num_kv_heads": 4, "num_experts": 4, "shared_size": 48, "num_dense_layers": 1,
             "dense_size": 96},
            {"num_experts": 4, "shared_size": 48, "has_shared_gate": True, "expert_step": 2},
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_its_peak_in_one_process_is_what_torchs_tracker_finds(shape):
    question = asked("single", 1, shape, microbatch=4, global_batch=4, precision="fp32")
    tracked = tracked_peak(
        lambda: RankTransformer(RankPlan(shape, question.training)),
        lambda: torch.zeros(4, 32, dtype=torch.long),
        lambda module, tokens: module.loss(module(tokens), torch.zeros_like(tokens)),
    )
    assert simulate_rank(question, 0).peak_bytes == tracked


def test_a_loss_in_chunks_has_the_value_and_the_gradient_of_torch():
    with torch.device("meta"):
        model = RankTransformer(RankPlan(TINY, TrainingSettings(sequence=32, loss_chunks=4)))
    logits, tokens = torch.randn(3, 32, 256, requires_grad=True), torch.randint(0, 256, (3, 32))
    losses = [
        model.loss(logits, tokens),
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()),
    ]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(one, logits)[0] for one in losses))


def test_the_norm_in_one_kernel_has_the_gradients_of_torch():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 8, requires_grad=True)
    weight = torch.randn(8, requires_grad=True)
    outputs = [rms_norm(x, weight), torch.nn.functional.rms_norm(x, [8], weight, 1e-5)]
    up = torch.randn(3, 5, 8)
    first, second = (torch.autograd.grad(y, (x, weight), up) for y in outputs)
    torch.testing.assert_close(outputs[0], outputs[1])
    torch.testing.assert_close(first, second)


def test_attention_in_a_window_has_the_gradients_of_torch():
    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, 9, size, requires_grad=True) for size in (4, 4, 6)]
    seen = torch.ones(9, 9, dtype=torch.bool).tril().triu(-3)
    public = torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask=seen)
    outputs = attention(*inputs, True, 4)[0], public
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), inputs) for y in outputs))


def test_attention_to_keys_in_blocks_has_the_values_and_gradients_of_attention_to_all():
    torch.manual_seed(0)
    shapes = (2, 4, 4, 8), (2, 2, 8, 8), (2, 2, 8, 8)  # of the last four tokens, and of all
    query, key, value = inputs = [torch.randn(one, requires_grad=True) for one in shapes]
    seen = torch.ones(4, 8, dtype=torch.bool).tril(4)
    public = torch.nn.functional.scaled_dot_product_attention(
        *inputs, attn_mask=seen, enable_gqa=True
    )
    blocks = list(zip(key.chunk(2, 2), value.chunk(2, 2), [False, True], strict=True))
    outputs, logs = zip(*(attention(query, *block) for block in blocks), strict=True)
    both = torch.logaddexp(*logs)
    shares = [(one - both).exp().unsqueeze(-1) for one in logs]
    whole = sum(one * share for one, share in zip(outputs, shares, strict=True))
    torch.testing.assert_close(whole, public)
    up = torch.randn_like(public)
    parts = [
        attention_backward(up, query, *keys, whole, both, is_causal) for *keys, is_causal in blocks
    ]
    of_query, of_key, of_value = zip(*parts, strict=True)
    ours = (sum(of_query), torch.cat(of_key, 2), torch.cat(of_value, 2))
    torch.testing.assert_close(ours, torch.autograd.grad(public, inputs, up))


def test_a_window_leaves_out_the_flops_of_what_it_hides():
    flops = [
        simulate_rank(asked("single", 1, changed(LLAMA, window=window)), 0).flops
        for window in (0, 8)
    ]  # of 7 products, forward and backward
    hidden = (LLAMA.context_length - 8) ** 2 / 2
    assert flops[0] - flops[1] == 8 * 7 * 2 * LLAMA.num_layers * hidden * LLAMA.hidden_size


HIDDEN, LENGTH, MICROBATCH = 512, 256, 2
WIDE = changed(GPT, hidden_size=HIDDEN, ffn_size=4 * HIDDEN, vocabulary=64, context_length=LENGTH)


def deep(strategy, devices, num_layers=4, num_microbatches=1, **how):
    batch = {"microbatch": MICROBATCH, "global_batch": MICROBATCH * num_microbatches}
    return asked(strategy, devices, changed(WIDE, num_layers=num_layers), **batch, **how)


def bytes_of_a_layer(strategy, ranks, **how):
    """Of activations, as the peaks of two depths differ by, for each `s b h`."""
    less, more = (
        simulate_rank(deep(strategy, ranks, depth, **how), 0).at_peak.activations_bytes
        for depth in (1, 2)
    )
    return (more - less) / (LENGTH * MICROBATCH * HIDDEN)


@pytest.mark.parametrize(("is_fused", "scores"), [(True, 0), (False, 5 * 4 * LENGTH / HIDDEN)])
def test_a_layer_with_dropout_keeps_what_korthikanti_et_al_count(is_fused, scores):
    """34 bytes a token and channel, and 5 a score; torch keeps up to an eighth more."""
    kept = bytes_of_a_layer("single", 1, dropout=0.1, has_fused_attention=is_fused)
    assert 34 + scores <= kept <= (34 + scores) * 9 / 8


def test_a_rank_of_sequence_parallelism_keeps_what_korthikanti_et_al_count():
    ranks = 4
    # 34 s b h / t with dropout, whose two masks are 2 of it (arXiv 2205.05198, section 4.2.2).
    assert bytes_of_a_layer("tp-sp", ranks) == pytest.approx(32 / ranks, rel=0.01)
    # Torch keeps the inputs of two products whole: 4 of the 32.
    assert bytes_of_a_layer("tp-sp-keep", ranks) == pytest.approx(28 / ranks + 4, rel=0.01)
    # Without sequence parallelism 10 of the 34 are whole, 2 of them masks.
    assert bytes_of_a_layer("tp", ranks) == pytest.approx(24 / ranks + 8, rel=0.01)


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
