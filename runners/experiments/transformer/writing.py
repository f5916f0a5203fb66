"""What a trained transformer writes: bytes drawn one after another from a seeded generator."""

from __future__ import annotations

import torch
from torch import nn

from runners.experiments.transformer import Settings
from runners.ranks.rank import Rank
from runners.training.text import Text

PROMPT = b"\n    def "
TEMPERATURE = 0.7  # below one, what is likely becomes likelier: less noise, less surprise


def write(rank: Rank[Settings], model: nn.Module, text: Text) -> None:
    """Let the model go on from a prompt, print what it wrote, and record how much of it is text."""
    settings = rank.settings
    written = sample(model, settings.context, settings.num_sample_bytes, rank.seed)
    for line in shown(written).splitlines():
        print(f"wrote: {line}")
    known, own = set(text.training.split()), written.split()
    rank.measure("sample", shown(written))
    rank.measure("num_sample_words", len(own))
    rank.measure("known_words_share", sum(word in known for word in own) / max(1, len(own)))


@torch.no_grad()
def sample(model: nn.Module, context: int, num_bytes: int, seed: int) -> bytes:
    """Bytes that the model draws after the prompt; the same for the same parameters and seed."""
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
