"""The small GPT against oracles: its text, counted parameters, what autograd keeps."""

from __future__ import annotations

import pytest
import torch

from runners.plans.experiment import find
from runners.training.text import (
    Text,
    batch_starts,
    held_out_starts,
    windows,
)
from runners.training.transformer_model import Transformer, TransformerShape, next_token_loss

SMALL = TransformerShape(vocabulary=256, context=16, width=8, num_heads=2, num_layers=2, hidden=32)


# --- the text


def test_no_sentence_of_the_held_out_text_is_trained_on() -> None:
    text = Text.read()
    assert not set(text.held_out.splitlines()) & set(text.training.splitlines())


def test_targets_are_the_bytes_that_follow() -> None:
    tokens, targets = windows(b"abcdefgh", [0, 3], 4)
    assert [bytes(row.tolist()) for row in tokens] == [b"abcd", b"defg"]
    assert [bytes(row.tolist()) for row in targets] == [b"bcde", b"efgh"]


def test_every_row_lies_within_the_text() -> None:
    text = bytes(range(100))
    starts = [s for step in batch_starts(text, 1, 50, 4, 16) for s in step]
    assert min(starts) >= 0
    assert max(starts) + 16 < len(text)
    assert max(held_out_starts(text, 7, 16)) + 16 < len(text)
    assert batch_starts(text, 1, 50, 4, 16) == batch_starts(text, 1, 50, 4, 16)


# --- the model and its closed forms


def test_the_closed_form_counts_the_parameters_that_the_model_has() -> None:
    model = Transformer(SMALL)
    assert sum(p.numel() for p in model.parameters()) == SMALL.num_parameters()
    assert sum(p.numel() for p in model.blocks[0].parameters()) == SMALL.block_parameters()


def test_no_byte_sees_what_comes_after_it() -> None:
    torch.manual_seed(0)
    model = Transformer(SMALL)
    tokens = torch.randint(0, 256, (1, 16))
    changed = tokens.clone()
    changed[0, 10:] = 0
    torch.testing.assert_close(model(tokens)[0, :10], model(changed)[0, :10])
    assert not torch.allclose(model(tokens)[0, 10:], model(changed)[0, 10:])


def saved_bytes(shape: TransformerShape, samples: int) -> int:
    """Bytes that autograd keeps of a forward pass, without parameters and samples: each once."""
    model = Transformer(shape)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.is_floating_point():
            kept[storage.data_ptr()] = storage
        return tensor

    tokens = torch.randint(0, 256, (samples, shape.context))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = next_token_loss(model(tokens), tokens)
    assert loss.isfinite()
    return sum(storage.nbytes() for storage in kept.values())


def test_the_closed_form_of_activations_is_what_autograd_keeps() -> None:
    settings = find("transformer").runs["single"].settings
    shape, samples = settings.shape, settings.global_batch_size
    gradients = 2 * 4 * samples * shape.context * 256  # of the scores, as backward begins
    kept = saved_bytes(shape, samples)
    kept_by_form = settings.closed_forms()["activation_bytes"] - gradients
    assert kept_by_form == pytest.approx(kept, rel=0.001)
