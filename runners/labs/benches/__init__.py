"""The bench of each lab: what a reader's code is called with, and the laws that it has to obey."""

from runners.labs.benches import (
    accum_nosync,
    clipped_stages,
    dealt_sentences,
    fsdp_unit,
    mean,
    recompute,
    ring,
    slow_head,
    stuck_save,
    tensor_mlp,
    tokens,
    zero1,
)
from runners.labs.grading import Bench

BENCHES: dict[str, Bench] = {
    "mean": mean,
    "ring": ring,
    "tokens": tokens,
    "zero1": zero1,
    "fsdp_unit": fsdp_unit,
    "tensor_mlp": tensor_mlp,
    "recompute": recompute,
    "accum_nosync": accum_nosync,
    "dealt_sentences": dealt_sentences,
    "stuck_save": stuck_save,
    "clipped_stages": clipped_stages,
    "slow_head": slow_head,
}
