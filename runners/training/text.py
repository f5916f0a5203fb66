"""The text that transformers train on, which ships with the book: its own lessons' prose.

`content/text` holds plain sentences of the lessons as they once were, without numbers. They stay
as they are when lessons change, so that a loss can be compared. One topic is held out: nobody
trains on it. A byte is a token, so the vocabulary is 256 and nothing needs to be learned to read
the text.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from runners.ranks.rank import Rank
from runners.training.shape import VOCABULARY

ROOT = Path(__file__).resolve().parents[2]
TRAINING = "content/text/training.txt"
HELD_OUT = "content/text/held_out.txt"
PROMPT = b"\nEach rank "
TEMPERATURE = 0.7  # below one, what is likely becomes likelier: less noise, less surprise


@dataclass(frozen=True)
class Text:
    """Bytes to train on, bytes never trained on, and the SHA-256 of both.

    They stay bytes of Python, outside every meter: what a batch needs becomes a tensor.
    """

    training: bytes
    held_out: bytes
    digest: str

    @classmethod
    def read(cls) -> Self:
        """The text, from the two files of the repository."""
        training, held_out = (ROOT / TRAINING).read_bytes(), (ROOT / HELD_OUT).read_bytes()
        return cls(training, held_out, hashlib.sha256(training + held_out).hexdigest())


def record(rank: Rank, text: Text) -> None:
    """Say which text a run trains on: bytes, digest, and what guessing would cost."""
    rank.measure("training_text_bytes", len(text.training))
    rank.measure("held_out_text_bytes", len(text.held_out))
    rank.measure("text_digest", text.digest)
    rank.measure("uniform_loss", math.log(VOCABULARY))
    rank.measure("frequency_loss", frequency_loss(text))


def frequency_loss(text: Text) -> float:
    """Loss per held-out byte of guessing each byte as often as it stands in the training text.

    In nats; a byte that never occurs there counts as if it occurred once.
    """
    seen = Counter(text.training)
    total = sum(max(1, seen[byte]) for byte in range(VOCABULARY))
    costs = (math.log(total / max(1, seen[byte])) * n for byte, n in Counter(text.held_out).items())
    return sum(costs) / len(text.held_out)


def windows(text: bytes, starts: Iterable[int], length: int) -> tuple[Tensor, Tensor]:
    """Sequences and what follows each of their bytes: two of int64, (starts, length)."""
    samples = [list(text[start : start + length + 1]) for start in starts]
    sequences = torch.tensor(samples, dtype=torch.int64)
    return sequences[:, :-1], sequences[:, 1:]


def batch_starts(
    text: bytes, seed: int, num_steps: int, samples: int, length: int
) -> list[list[int]]:
    """Where each sample of each step begins: the same for every strategy."""
    source = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, len(text) - length, (num_steps, samples), generator=source)
    return [list(map(int, of_step)) for of_step in starts.tolist()]


def held_out_starts(text: bytes, samples: int, length: int) -> list[int]:
    """Where samples of held-out text begin, spread evenly over it."""
    return [sample * (len(text) - length - 1) // samples for sample in range(samples)]


def write(rank: Rank, model: nn.Module, context: int, num_bytes: int) -> None:
    """Let a model go on from the prompt, print what it wrote, and record how much of it is text."""
    written = sample(model, context, num_bytes, rank.seed)
    for line in shown(written).splitlines():
        print(f"wrote: {line}")
    known, own = set(Text.read().training.split()), written.split()
    rank.measure("sample", shown(written))
    rank.measure("num_sample_words", len(own))
    rank.measure("known_words_share", sum(word in known for word in own) / max(1, len(own)))


@torch.no_grad()
def sample(model: nn.Module, context: int, num_bytes: int, seed: int) -> bytes:
    """Bytes that a model draws after the prompt; the same for the same parameters and seed."""
    source = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    tokens = list(PROMPT)
    for _ in range(num_bytes):
        seen = torch.tensor([tokens[-context:]], device=device)
        shares = torch.softmax(model(seen)[0, -1].double().cpu() / TEMPERATURE, 0)
        tokens.append(int(torch.multinomial(shares, 1, generator=source)))
    return bytes(tokens)


def shown(written: bytes) -> str:
    """Bytes as text for a terminal: whatever is neither printable nor a new line is a dot."""
    text = written.decode("latin-1")
    return "".join(c if c.isprintable() or c == "\n" else "·" for c in text)
