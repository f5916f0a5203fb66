"""At which sizes primitives are measured, and their names. No torch."""

from __future__ import annotations

BUSY = (1, 2, 4)  # ranks that do the same at once
MATRICES = ((8, 64), (32, 256), (128, 256), (128, 1024), (512, 256), (512, 1024))  # rows, width
ELEMENTWISE_BYTES = (65_536, 1_048_576, 16_777_216)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send")
COMMUNICATED_BYTES = (4_096, 262_144, 16_777_216)


def needed() -> set[str]:
    """The primitives that every machine has: what one rank does by itself."""
    return {
        *(f"matrix_{rows}x{size}_1_seconds" for rows, size in MATRICES),
        *(f"elementwise_{num_bytes}_1_seconds" for num_bytes in ELEMENTWISE_BYTES),
    }
