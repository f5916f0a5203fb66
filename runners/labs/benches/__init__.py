"""The bench of each lab: what a reader's code is called with, and the laws that it has to obey."""

from runners.labs.benches import fsdp_unit, recompute, ring, tensor_mlp
from runners.labs.grading import Bench

BENCHES: dict[str, Bench] = {
    "ring": ring,
    "fsdp_unit": fsdp_unit,
    "tensor_mlp": tensor_mlp,
    "recompute": recompute,
}
