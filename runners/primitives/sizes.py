"""At which sizes primitives are measured, and their names. No torch."""

from __future__ import annotations

BUSY = (1, 2, 4)  # ranks that do the same at once
# Rows of a batch, and the width of a square layer; larger ones of both take no other rate.
MATRICES = (
    *((rows, size) for rows in (8, 32) for size in (64, 256, 1024, 2048)),
    *((128, size) for size in (64, 256, 1024)),
    *((rows, size) for rows in (512, 2048) for size in (64, 256)),
    (512, 1024),
)
ELEMENTWISE_BYTES = (1_024, 65_536, 1_048_576, 16_777_216, 67_108_864)
SMOOTH_VALUES = 65_536  # that go through a GELU, and their gradient through its
OPTIMIZERS = ("sgd", "fused_adam")
OPTIMIZED_PARAMETERS = (16_384, 1_048_576, 8_388_608)
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "scatter",
    "gather",
    "send",
)
COMMUNICATED_BYTES = (4_096, 262_144, 4_194_304, 16_777_216)


def needed() -> set[str]:
    """The primitives that every machine has: what one rank does by itself."""
    return {
        *(f"matrix_{rows}x{size}_1_seconds" for rows, size in MATRICES),
        *(f"elementwise_{num_bytes}_1_seconds" for num_bytes in ELEMENTWISE_BYTES),
        *(f"{name}_{size}_1_seconds" for name in OPTIMIZERS for size in OPTIMIZED_PARAMETERS),
        *(f"{name}_1_seconds" for name in ("operation", "step", "smooth", "crowded")),
    }
