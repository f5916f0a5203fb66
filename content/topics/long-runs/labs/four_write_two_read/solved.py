"""Each rank writes its rows; a reader asks each writer for the rows that both of them have."""

from typing import Any

import torch
from torch import Tensor


def rows_of(num_rows: int, rank: int, num_ranks: int) -> tuple[int, int]:
    """The rows of a rank, as `torch.chunk` divides them: from the first up to the second number."""
    share = -(-num_rows // num_ranks)  # rounded up
    return min(rank * share, num_rows), min((rank + 1) * share, num_rows)


def write(store: Any, parts: dict[str, Tensor], rank: int, num_ranks: int) -> None:
    """Write this rank's parts of a checkpoint."""
    for name, part in parts.items():
        store.write(f"{name}/{rank}", part)
    if rank == 0:
        store.write("num_writers", torch.tensor([num_ranks]))


def read(store: Any, rows: dict[str, int], rank: int, num_ranks: int) -> dict[str, Tensor]:
    """Return, by name, this rank's rows of each tensor, of a checkpoint that is written."""
    num_writers = int(store.read("num_writers", 0, 1))
    own = {}
    for name, num_rows in rows.items():
        begin, end = rows_of(num_rows, rank, num_ranks)
        pieces = []
        for writer in range(num_writers):
            start, stop = rows_of(num_rows, writer, num_writers)
            first, last = max(begin, start), min(end, stop)
            if first < last or not pieces:  # no rows have a shape, too
                pieces.append(store.read(f"{name}/{writer}", first - start, last - start))
        own[name] = torch.cat(pieces)
    return own
