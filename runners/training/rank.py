"""What a run may take from here: the rank that it is given, and what measures on it."""

from proofbook.runners.core.meters.collectives import AxisMeter
from proofbook.runners.core.meters.memory import FakeMemoryMeter, local
from proofbook.runners.core.ranks.rank import NUM_METERED_STEPS, Rank
from proofbook.runners.core.ranks.recorder import first_values, parameter_digest
from proofbook.runners.core.system import links
from proofbook.runners.core.system.gloo_threads import wait_until_idle
from proofbook.runners.core.system.links import LinkError, address
from proofbook.runners.core.system.processes import end_with

__all__ = [
    "NUM_METERED_STEPS",
    "AxisMeter",
    "FakeMemoryMeter",
    "LinkError",
    "Rank",
    "address",
    "end_with",
    "first_values",
    "links",
    "local",
    "parameter_digest",
    "wait_until_idle",
]
