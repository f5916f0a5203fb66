"""The bench of each lab: what a reader's code is called with, and the laws that it has to obey."""

from runners.labs.benches import (
    accum_nosync,
    clipped_stages,
    dealt_sentences,
    ring,
    slow_head,
    stuck_save,
)
from runners.labs.grading import Bench

BENCHES: dict[str, Bench] = {
    "accum_nosync": accum_nosync,
    "clipped_stages": clipped_stages,
    "dealt_sentences": dealt_sentences,
    "ring": ring,
    "slow_head": slow_head,
    "stuck_save": stuck_save,
}
