"""A checkpoint of parts, which another number of ranks reads than has written it.

python -m runners lab four_write_two_read
"""

from typing import Any

from torch import Tensor


def rows_of(num_rows: int, rank: int, num_ranks: int) -> tuple[int, int]:
    """The rows of a rank, as `torch.chunk` divides them: from the first up to the second number."""
    share = -(-num_rows // num_ranks)  # rounded up
    return min(rank * share, num_rows), min((rank + 1) * share, num_rows)


def write(store: Any, parts: dict[str, Tensor], rank: int, num_ranks: int) -> None:
    """Write this rank's parts of a checkpoint.

    Args:
        store: all ranks share it. `store.write(name, tensor)` writes a tensor of at least one axis
            under a new name, and `store.read(name, begin, end)` returns its rows from `begin` up to
            `end`.
        parts: by name, this rank's rows of each tensor.
        rank: of this rank among those that write.
        num_ranks: that write.
    """
    raise NotImplementedError("write write here")


def read(store: Any, rows: dict[str, int], rank: int, num_ranks: int) -> dict[str, Tensor]:
    """Return, by name, this rank's rows of each tensor, of a checkpoint that is written.

    Args:
        store: of the ranks that wrote.
        rows: by name, the number of rows of each whole tensor.
        rank: of this rank among those that read.
        num_ranks: that read; how many have written, the checkpoint has to say.
    """
    raise NotImplementedError("write read here")
