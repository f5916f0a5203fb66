"""The text that transformers train on, which ships with the book: its own lessons' prose.

`content/text` holds plain sentences of the lessons as they once were, without numbers. They stay
as they are when lessons change, so that a loss can be compared. One topic is held out: nobody
trains on it. A byte is a token, so the vocabulary is 256 and nothing needs to be learned to read
the text.
"""

import hashlib
import math
from collections.abc import Iterable
from typing import NamedTuple, Self

import torch
from torch import Tensor

from proofbook.runners.api import ROOT
from proofbook.runners.closed_forms.shape import VOCABULARY
from proofbook.runners.training.rank import Rank

TRAINING = "content/text/training.txt"
HELD_OUT = "content/text/held_out.txt"


class Text(NamedTuple):
    """Bytes to train on, and bytes never trained on.

    They stay bytes of Python, outside every meter: what a batch needs becomes a tensor.
    """

    training: bytes
    held_out: bytes

    @classmethod
    def read(cls) -> Self:
        """The text, from the two files of the repository."""
        return cls((ROOT / TRAINING).read_bytes(), (ROOT / HELD_OUT).read_bytes())


def record(rank: Rank, text: Text) -> None:
    """Say which text a run trains on, and what guessing would cost."""
    rank.measure("text_digest", hashlib.sha256(text.training + text.held_out).hexdigest())
    rank.measure("uniform_loss", math.log(VOCABULARY), unit="loss")


def windows(text: bytes, starts: Iterable[int], length: int) -> tuple[Tensor, Tensor]:
    """Sequences and what follows each of their bytes: two of int64, (starts, length)."""
    samples = [list(text[start : start + length + 1]) for start in starts]
    sequences = torch.tensor(samples, dtype=torch.int64)
    return sequences[:, :-1], sequences[:, 1:]


def batch_starts(
    text: bytes, seed: int, num_steps: int, samples: int, length: int
) -> list[list[int]]:
    """Lists, by step, of random places in the text where samples begin, from the seed alone."""
    source = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, len(text) - length, (num_steps, samples), generator=source)
    return [list(map(int, of_step)) for of_step in starts.tolist()]


def held_out_starts(text: bytes, samples: int, length: int) -> list[int]:
    """Where samples of held-out text begin, spread evenly over it."""
    return [sample * (len(text) - length - 1) // samples for sample in range(samples)]
