"""The transformer that plans simulate: its size is the closed form's, and it can be trained."""

import pytest
import torch

from proofbook.runners.planner.answers.question import TrainingSettings
from proofbook.runners.planner.simulated.fused_kernels import (
    attention,
    attention_backward,
    rms_norm,
)
from proofbook.runners.planner.simulated.one_rank import simulate_rank
from proofbook.runners.planner.simulated.transformer import RankPlan, RankTransformer
from tests.runners.questions import GPT, LLAMA, asked, changed
from tests.runners.tracked import tracked_peak

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
        lambda: RankTransformer(RankPlan.of(shape, question.training)),
        lambda: torch.zeros(4, 32, dtype=torch.long),
        lambda module, tokens: module.loss(module(tokens), torch.zeros_like(tokens)),
    )
    assert simulate_rank(question, 0).peak_bytes == tracked


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tiny_one_trains_with_values(shape):
    torch.manual_seed(0)
    model = RankTransformer(RankPlan.of(shape, TrainingSettings(sequence=32)))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    if model.rotations is not None:
        model.rotations = torch.polar(torch.ones(half := model.rotations.shape), torch.rand(half))
    update = torch.optim.Adam(model.parameters(), 1e-2)
    tokens = torch.randint(0, 256, (3, 32))
    losses = []
    for _ in range(15):
        loss = model.loss(model(tokens), tokens)
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(loss.item())
    assert sum(p.numel() for p in model.parameters()) == shape.num_parameters
    assert losses[-1] < 0.8 * losses[0]


def test_a_loss_in_chunks_has_the_value_and_the_gradient_of_torch():
    with torch.device("meta"):
        model = RankTransformer(RankPlan.of(TINY, TrainingSettings(sequence=32, loss_chunks=4)))
    logits, tokens = torch.randn(3, 32, 256, requires_grad=True), torch.randint(0, 256, (3, 32))
    losses = [
        model.loss(logits, tokens),
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()),
    ]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(one, logits)[0] for one in losses))


def test_stages_share_the_parameters_out():
    with torch.device("meta"):
        part = RankPlan.of(LLAMA, TrainingSettings(sequence=32))
        stages = [RankTransformer(part, layers) for layers in ([0], [1])]
    assert sum(p.numel() for s in stages for p in s.parameters()) == LLAMA.num_parameters


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
