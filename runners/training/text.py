"""Real text without a download: sources of the standard library, which every Python carries.

A byte is a token, so the vocabulary is 256 and nothing needs to be learned to read the text. The
files are pure Python of CPython 3.11 and later; what stands in them differs by version, so a run
records their names, their bytes and a digest (`record`), and no law may depend on them. Some files
are held out: nobody trains on them.
"""

from __future__ import annotations

import hashlib
import math
import sysconfig
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from runners.ranks.rank import Rank
from runners.training.shape import VOCABULARY

TRAINING = (
    "argparse.py",
    "calendar.py",
    "configparser.py",
    "contextlib.py",
    "csv.py",
    "dataclasses.py",
    "difflib.py",
    "enum.py",
    "fractions.py",
    "functools.py",
    "heapq.py",
    "inspect.py",
    "ipaddress.py",
    "optparse.py",
    "random.py",
    "shutil.py",
    "subprocess.py",
    "tempfile.py",
    "threading.py",
    "tokenize.py",
)
HELD_OUT = ("statistics.py", "textwrap.py")


@dataclass(frozen=True)
class Text:
    """Bytes to train on, bytes never trained on, and the SHA-256 of both.

    They stay bytes of Python, outside every meter: what a batch needs becomes a tensor.
    """

    training: bytes
    held_out: bytes
    digest: str


def read_text(folder: Path | None = None) -> Text:
    """The text as this Python carries it.

    Args:
        folder: where the standard library's sources lie; the running Python's by default.

    Raises:
        FileNotFoundError: a file is missing, as where the library is kept in an archive.
    """
    folder = folder or Path(sysconfig.get_paths()["stdlib"])
    parts = {name: (folder / name).read_bytes() for name in (*TRAINING, *HELD_OUT)}
    digest = hashlib.sha256()
    for name, part in parts.items():
        digest.update(f"{name} {len(part)}\n".encode())
        digest.update(part)
    return Text(
        b"".join(parts[name] for name in TRAINING),
        b"".join(parts[name] for name in HELD_OUT),
        digest.hexdigest(),
    )


def record(rank: Rank, text: Text) -> None:
    """Say which text a run trains on: files, bytes, digest, and what guessing would cost."""
    rank.measure("training_files", list(TRAINING))
    rank.measure("held_out_files", list(HELD_OUT))
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
