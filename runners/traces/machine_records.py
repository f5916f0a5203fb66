"""What is recorded of a machine: the models of `machine.json` and `primitives.json`. No torch."""

from __future__ import annotations

from typing import Literal

from runners.traces.measured import SampledSeconds
from runners.traces.schema import Record


class Accelerator(Record):
    """One accelerator of a machine."""

    name: str
    memory_bytes: int


class Cache(Record):
    """The caches of one level and kind."""

    level: int
    kind: Literal["data", "instruction", "unified"]
    bytes: int  # of one of them
    num_caches: int
    num_sharing: int  # processors that share one of them


class NumaNode(Record):
    """Processors with memory of their own; other nodes' memory is further away."""

    num_cores: int
    memory_bytes: int | None


class AcceleratorLink(Record):
    """What lies between two accelerators."""

    first: int
    second: int
    kind: str  # as nvidia-smi names it: NV4 is four NVLinks, SYS the whole way


class Topology(Record):
    """How a machine is put together; null or empty where the system does not tell."""

    num_sockets: int | None
    num_physical_cores: int | None
    threads_per_core: int | None
    caches: list[Cache]
    numa_nodes: list[NumaNode]
    links: list[AcceleratorLink]


class Machine(Record):
    """What a machine is; its folder's name is `name`."""

    schema_version: Literal[1]
    name: str
    fingerprint: str
    is_reference: bool
    cpu: str
    num_cores: int  # that ranks may use
    num_installed_cores: int | None = None  # whether or not ranks may use them; null: not recorded
    memory_bytes: int
    system: str
    python: str
    torch: str
    accelerators: list[Accelerator]
    topology: Topology | None = None  # null: described before it was
    libraries: dict[str, str] = {}  # versions of what torch computes and communicates with


class Primitives(Record):
    """What a machine computes and communicates in how long."""

    schema_version: Literal[1]
    machine: str
    recorded_at: str  # UTC, ISO 8601, seconds
    # By name with its unit: `matrix_flops_per_second`, `all_reduce_2_alpha_seconds`.
    primitives: dict[str, SampledSeconds | float]
