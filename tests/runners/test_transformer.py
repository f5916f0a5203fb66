"""The small GPT: what it is trained on, and that it looks at no later byte."""

import math

import pytest
import torch

from proofbook.runners.training.text import Text, batch_starts, held_out_starts, windows
from proofbook.runners.training.transformer_model import SmallGPT, TransformerShape, next_token_loss

SMALL = TransformerShape(vocabulary=256, context=16, width=8, num_heads=2, num_layers=2, hidden=32)


def test_no_sentence_of_the_held_out_text_is_trained_on():
    text = Text.read()
    assert not set(text.held_out.splitlines()) & set(text.training.splitlines())


def test_targets_are_the_bytes_that_follow():
    tokens, targets = windows(b"abcdefgh", [0, 3], 4)
    assert [bytes(row.tolist()) for row in tokens] == [b"abcd", b"defg"]
    assert [bytes(row.tolist()) for row in targets] == [b"bcde", b"efgh"]


def test_every_sample_lies_within_the_text():
    text = bytes(range(100))
    starts = [s for step in batch_starts(text, 1, 50, 4, 16) for s in step]
    assert min(starts) >= 0
    assert max(starts) + 16 < len(text)
    assert max(held_out_starts(text, 7, 16)) + 16 < len(text)
    assert batch_starts(text, 1, 50, 4, 16) == batch_starts(text, 1, 50, 4, 16)


def test_no_byte_sees_what_comes_after_it():
    torch.manual_seed(0)
    model = SmallGPT(SMALL)
    tokens = torch.randint(0, 256, (1, 16))
    changed = tokens.clone()
    changed[0, 10:] = 0
    torch.testing.assert_close(model(tokens)[0, :10], model(changed)[0, :10])
    assert not torch.allclose(model(tokens)[0, 10:], model(changed)[0, 10:])


def test_the_loss_is_the_mean_over_the_positions_of_every_sequence():
    logits = torch.tensor([[[0.0, 0.0], [0.0, 9.0]], [[0.0, 0.0], [0.0, 0.0]]])
    last = math.log(1 + math.exp(-9))  # of the one position that prefers its target
    loss = next_token_loss(logits, torch.tensor([[0, 1], [1, 0]]))
    assert loss.item() == pytest.approx((3 * math.log(2) + last) / 4)
