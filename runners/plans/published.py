"""Published measurements of memory that a simulation is compared with. No torch.

In: planner/published_measurements.yml, whose head states which measurements qualify. Out: rows with
the whole configuration, what was measured, and the exact place that states it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, model_validator

from runners.plans.architecture import Architecture
from runners.plans.model_presets import Id, Source
from runners.plans.settings import Count, FactorOrZero
from runners.traces.schema import Record

PUBLISHED = (
    Path(__file__).resolve().parents[2] / "content" / "planner" / "published_measurements.yml"
)
GIB = 1 << 30

Positive = Annotated[float, Field(gt=0)]


class Parallelism(Record):
    """How many ways each axis divides the work, and what data parallelism shards.

    Attributes:
        data: ranks that see other samples.
        sharding: `none` (gradients are summed, as DDP does), `zero1` (the optimizer's state is
            sharded), or `fsdp` (parameters and gradients as well, resharded after forward;
            `fsdp-keep` does not reshard).
        last_block_stays: FSDP keeps the last block's parameters between forward and backward.
        ends_are_units: FSDP wraps the embedding, and the last norm with the logits, as units.
        sequence: activations between the parts that tensor parallelism splits are sharded too.
        chunks: stages of each rank of the pipeline.
        layers: of each pipeline stage, where they are not equal.
    """

    data: Count
    tensor: Count = 1
    pipeline: Count = 1
    context: Count = 1
    sequence: bool = False
    sharding: Literal["none", "zero1", "fsdp", "fsdp-keep"]
    last_block_stays: bool = False
    ends_are_units: bool = False
    schedule: Literal["none", "1f1b", "interleaved"] = "none"
    chunks: Count = 1
    layers: list[Count] = []

    @property
    def num_devices(self) -> int:
        """The product of all axes."""
        return self.data * self.tensor * self.pipeline * self.context


class Batch(Record):
    """Samples of a step.

    Attributes:
        micro: samples of one forward pass on one data-parallel rank.
        total: samples of one update over all ranks.
        num_microbatches: forward passes of one rank for one update.
    """

    sequence_length: Count
    micro: Count
    total: Count
    num_microbatches: Count


class Precision(Record):
    """Types of what is kept and computed.

    Attributes:
        parameters: of the tensors that the model holds between steps.
        gradients: of those that the update reads.
        master: of the optimizer's copy of the parameters; null where it has none.
        moments: of each of Adam's two.
    """

    compute: Literal["bf16", "fp16"]
    parameters: Literal["fp32", "bf16", "fp16"]
    gradients: Literal["fp32", "fp16"]
    master: Literal["fp32"] | None
    moments: Literal["fp32"]


class Device(Record):
    """What it ran on."""

    name: str
    memory_gib: Positive | None = Field(None, description="where the source states it")
    count: Count


class Measurement(Record):
    """One published number.

    Attributes:
        kind: `allocated` are blocks given out, `active` those and freed ones that a stream still
            uses, `reserved` all segments.
        moment: `peak` since the start, or `between_steps`.
        rank: which rank's; `largest` over all.
        value: as published, in `unit`; `percent` is of the device's memory.
        step: after which update it was read, where the source says so.
    """

    kind: Literal["allocated", "active", "reserved"]
    moment: Literal["peak", "between_steps"]
    rank: Literal["last", "largest", "unstated"]
    value: Positive
    unit: Literal["bytes", "GiB", "percent"]
    step: Count | None = None
    field: str


class PublishedRow(Record):
    """One configuration that was measured.

    Attributes:
        id: names the row; `case` is its name at the source.
        source: where it stands; its path may hold `{case}`.
        implementation: whose layers; they decide which activations are kept.
        padded_vocabulary: rows of the embedding as allocated, over all tensor-parallel ranks.
        attention: `unfused` keeps the scores of all heads, `flash` does not; `auto` leaves the
            choice to Transformer Engine.
        loss: of the logits; `fused` is one kernel, `chunked` takes parts of them in turn.
        dropout: probability, of hidden states and of attention alike.
        optimizer: `fused`, or `foreach`, which may take temporaries.
        recomputation: `selective_op` keeps what torchtitan's policy saves.
        details: other settings that change what is allocated, by the names of notes.
        derived: what the source does not state and how it follows, by the names of notes.
    """

    id: Id
    case: str
    source: Source
    implementation: Literal["transformer_engine", "megatron_local", "torchtitan"]
    model: str
    architecture: Architecture
    padded_vocabulary: Count
    attention: Literal["unfused", "flash", "auto"]
    loss: Literal["plain", "fused", "chunked"] = "plain"
    dropout: FactorOrZero
    batch: Batch
    parallelism: Parallelism
    precision: Precision
    optimizer: Literal["adam_fused", "adamw_foreach"]
    recomputation: Literal["none", "full", "selective_op"]
    expandable_segments: bool = False
    device: Device
    measured: Annotated[list[Measurement], Field(min_length=1)]
    details: list[str] = []
    derived: list[str] = []

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        parallelism, batch = self.parallelism, self.batch
        if parallelism.num_devices != self.device.count:
            raise ValueError(f"{self.id}: axes of {parallelism.num_devices} ranks")
        if batch.total != batch.micro * batch.num_microbatches * parallelism.data:
            raise ValueError(f"{self.id}: the microbatches do not make the global batch")
        if sum(parallelism.layers) not in (0, self.architecture.num_layers):
            raise ValueError(f"{self.id}: the stages' layers are not the model's")
        if any(one.unit == "percent" for one in self.measured) and not self.device.memory_gib:
            raise ValueError(f"{self.id}: a share of a device whose memory is not stated")
        return self

    @property
    def workspace_bytes(self) -> int:
        """What libraries keep on a rank of Megatron's.

        A workspace for each of torch's two handles of cuBLAS, that of the main thread and that of
        autograd's (aten/src/ATen/cuda/CublasHandlePool.cpp of pytorch/pytorch at 26a39059: 32 MiB
        on Hopper and by CUBLAS_WORKSPACE_CONFIG :4096:8, else 8.125), and 32 MiB of Transformer
        Engine (`get_cublas_workspace_size_bytes`). What the rows hold between steps exceeds their
        state by so much, and at most 20 MiB more (tests/runners/test_published.py).
        """
        if self.implementation == "torchtitan":
            return 0
        is_large = "H100" in self.device.name or {"cublas-workspace", "deterministic"} & {
            *self.details
        }
        return round((2 * (32 if is_large else 8.125) + 32) * 2**20)

    @property
    def path(self) -> str:
        """The file, or what else of its source holds the row."""
        return self.source.path.replace("{case}", self.case)

    def bytes_of(self, kind: str, moment: str = "peak") -> float | None:
        """A measurement in bytes; None where this kind was not published."""
        found = next((m for m in self.measured if (m.kind, m.moment) == (kind, moment)), None)
        return found.value * self._unit_bytes(found) if found else None

    def _unit_bytes(self, measurement: Measurement) -> float:
        if measurement.unit == "percent":
            return (self.device.memory_gib or 0) * GIB / 100
        return GIB if measurement.unit == "GiB" else 1


@cache
def published(path: Path = PUBLISHED) -> list[PublishedRow]:
    """The rows, in the order of the file, whose head says what else it holds.

    Raises:
        ValueError: a row is not what it should be.
    """
    file = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [PublishedRow.model_validate(row) for row in file["rows"]]
