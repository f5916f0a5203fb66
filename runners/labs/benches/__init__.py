"""The bench of each lab: what a reader's code is called with, and the laws that it has to obey."""

from runners.labs.benches import mean, ring, tokens, zero1
from runners.labs.grading import Bench

BENCHES: dict[str, Bench] = {"mean": mean, "ring": ring, "tokens": tokens, "zero1": zero1}
