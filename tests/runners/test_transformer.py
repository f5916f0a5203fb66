"""The small GPT against oracles: counted parameters, naive loops, one device's training."""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runners.experiments.transformer.writing import PROMPT, sample, shown
from runners.plans.experiment import find
from runners.traces.records import Run
from runners.training.text import (
    HELD_OUT,
    TRAINING,
    Text,
    batch_starts,
    frequency_loss,
    held_out_starts,
    read_text,
    windows,
)
from runners.training.transformer_model import Transformer, TransformerShape, next_token_loss

Measure = Callable[[str, str], Run]
SMALL = TransformerShape(vocabulary=256, context=16, width=8, num_heads=2, num_layers=2, hidden=32)


# --- the text


def test_the_text_is_what_the_named_files_hold_and_no_file_is_in_both_parts() -> None:
    text = read_text()
    assert not set(TRAINING) & set(HELD_OUT)
    folder = Path(sysconfig.get_paths()["stdlib"])
    whole = b"".join((folder / name).read_bytes() for name in TRAINING)
    assert text.training == whole
    assert text.held_out not in text.training


def test_another_byte_anywhere_is_another_digest(tmp_path: Path) -> None:
    for name in (*TRAINING, *HELD_OUT):
        (tmp_path / name).write_bytes(name.encode())
    before = read_text(tmp_path).digest
    (tmp_path / HELD_OUT[-1]).write_bytes(b"other")
    assert read_text(tmp_path).digest != before


def test_a_library_without_sources_is_said_to_lack_them(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=TRAINING[0]):
        read_text(tmp_path)


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


def test_guessing_by_frequency_costs_the_cross_entropy_of_the_two_texts() -> None:
    text = Text(training=b"aaab", held_out=b"ab", digest="")
    # Of 4 bytes, 3 are a; every byte that never stands there counts as once: 4 + 254.
    expected = -(math.log(3 / 258) + math.log(1 / 258)) / 2
    assert frequency_loss(text) == pytest.approx(expected)


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


def test_a_sample_is_the_same_for_the_same_seed_and_goes_on_from_the_prompt() -> None:
    torch.manual_seed(0)
    model = Transformer(SMALL)
    one, other = sample(model, 16, 20, seed=1), sample(model, 16, 20, seed=2)
    assert one == sample(model, 16, 20, seed=1) != other
    assert one.startswith(PROMPT)
    assert len(one) == len(PROMPT) + 20
    assert shown(b"a\x00\nb") == "a·\nb"


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
    shape = TransformerShape(
        256,
        settings.context,
        settings.width,
        settings.num_heads,
        settings.num_layers,
        settings.hidden,
    )
    samples = settings.global_batch_size
    gradients = 2 * 4 * samples * shape.context * 256  # of the scores, as backward begins
    kept = saved_bytes(shape, samples)
    kept_by_form = settings.activation_bytes - gradients
    assert kept_by_form == pytest.approx(kept, rel=0.001)


@pytest.mark.parametrize(
    ("name", "changed", "word"),
    [
        ("ddp", {"global_batch_size": 7}, "samples"),
        ("single", {"num_heads": 5}, "num_heads"),
        ("tensor_parallel", {"num_heads": 1}, "heads"),
        ("pipelined", {"num_layers": 3}, "layers"),
        ("pipelined", {"num_microbatches": 3}, "num_microbatches"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused(name: str, changed: dict[str, int], word: str) -> None:
    plan = find("transformer").runs[name]
    with pytest.raises(ValueError, match=word):
        replace(plan, settings=plan.settings.changed(changed))


# --- the runs


@pytest.mark.ranks
def test_stages_in_a_row_learn_what_one_device_learns(run: Measure) -> None:
    single, staged = run("transformer", "single"), run("transformer", "pipelined")
    assert len(single.step_losses) == single.settings["num_steps"]
    assert staged.step_losses == pytest.approx(single.step_losses, rel=1e-3)
    assert single.step_losses[-1] < single.step_losses[0]  # type: ignore[operator]
    assert sum(r.num_parameters or 0 for r in staged.ranks) == single.ranks[0].num_parameters
