"""Which memory of a device a rank needs: the one rule of *fits*. No torch.

In: what the allocator would reserve on a rank and gives out at its peak, simulated or by closed
forms. Out: bytes of a device's memory as `nvidia-smi` reports it, and a verdict. What is outside
the allocator are named terms, each of which content/references.yml cites by the same value.
"""

from math import ceil
from typing import Literal

MIB = 1 << 20
DRIVER_BYTES = 451 * MIB  # that nvidia-smi counts and no process can allocate; on an A100
CONTEXT_BYTES = 534 * MIB  # of CUDA, for a process; on an H100
COMMUNICATOR_BYTES = 688 * MIB  # of NCCL, for a group of more than two ranks; on A100s
H100_BYTES = 81_559 * MIB
WORKSPACE_BYTES = 64 * MIB  # of cuBLAS: 32 MiB for each of torch's two handles; on Hopper
ERROR = 0.04  # by which published peaks may exceed their simulations, as a share of these
# The same of closed forms, to either side: with 95 % confidence 99 % of rows are within. It follows
# from the rows `FITTED` of published_simumax.csv, drawn once among those with a measured peak.
FORM_ERROR = 0.12
FITTED = ("sm002", "sm005", "sm010", "sm011", "sm017", "sm018", "sm019", "sm020", "sm021", "sm022",
          "sm042")  # fmt: skip

OUTSIDE_SAYS = "driver, CUDA context, NCCL's communicators, cuBLAS workspaces"

Verdict = Literal["fits", "marginal", "no"]


def needed_bytes(reserved: int, num_communicators: int, error: float = ERROR) -> int:
    """Bytes of a device with which a rank fits: reserved and an error, driver, CUDA, NCCL, cuBLAS.

    Formula: (1 + error) × reserved + driver + context + communicators × communicator + workspaces.
    """
    outside = CONTEXT_BYTES + num_communicators * COMMUNICATOR_BYTES + WORKSPACE_BYTES
    return ceil((1 + error) * reserved) + DRIVER_BYTES + outside


def least_bytes(allocated: int) -> int:
    """Bytes of memory below which no rank fits: blocks at the peak, driver and context."""
    return allocated + DRIVER_BYTES + CONTEXT_BYTES


def verdict(memory: float, needed: int, least: int) -> Verdict:
    """Whether a rank fits a device; between both limits it is marginal."""
    if needed <= memory:
        return "fits"
    return "marginal" if least <= memory else "no"
