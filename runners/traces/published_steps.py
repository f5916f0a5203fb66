"""Published rates of training steps, and what the law of time makes of them. No torch.

In: planner/published_steps.yml, whose head states which rates qualify. `python -m runners plan
--published-steps --grid` computes from it planner/plan_steps.json, a trace with a run for each row
and each device, which pages read alone: `plan_steps.ROW.ranks[0].measures.predicted`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Literal

from runners.traces.digest import ROOT, file_digest
from runners.traces.plan_grid import PREFIX
from runners.traces.records import Run, Trace
from runners.traces.schema import Record

EXPERIMENT = f"{PREFIX}steps"
FILE = f"planner/{EXPERIMENT}.json"  # of the content
ROWS = ROOT / "content" / "planner" / "published_steps.yml"
QUESTION = "How far does one efficiency for each device explain published rates of training steps?"
_COLUMNS = ("model", "sequence", "devices", "tensor", "pipeline", "micro", "batch", "rate")
_CODE = ("published_steps", "law_of_time")


class PublishedStep(Record):
    """A published rate, with all that its table, model, device and source say of it.

    Attributes:
        table, device: their names in the file.
        micro, batch: samples of a forward pass of one data-parallel rank, and of a step.
        rate: of each device, in `unit`.
        layers, hidden, vocabulary: of a dense decoder.
        layer_weights: of a layer's products, if they are not 12 × hidden².
        sharding: of data parallelism.
        is_interleaved: a rank of a pipeline has as many stages as layers.
        recomputed: the share of the layers' products that backward computes again.
        reduced_bytes: of a gradient, as FSDP reduces it.
        flops: of a device in a second, at its highest rate.
        within, between: bytes a second, as `law_of_time.Cluster` has them; None where the source
            does not state what a node sends.
    """

    table: str
    device: str
    model: str
    sequence: int
    devices: int
    tensor: int
    pipeline: int
    micro: int
    batch: int
    rate: float
    layers: int
    hidden: int
    vocabulary: int
    layer_weights: int = 0
    sharding: Literal["none", "fsdp"]
    is_interleaved: bool = True
    recomputed: float
    reduced_bytes: int = 2
    flops: float
    within: float
    between: float | None
    title: str
    where: str
    url: str
    unit: Literal["TFLOP/s", "tokens/s"]

    @property
    def run(self) -> str:
        """The name of its run."""
        model = self.model.lower().replace(" ", "_").replace(".", "_")
        return f"{self.table}_{model}_{self.sequence}_on_{self.devices}"

    @property
    def reference(self) -> str:
        """The name by which expressions cite it."""
        return f"step-{self.run.replace('_', '-')}"


def published_steps() -> list[PublishedStep]:
    """The rows, in the order of the file.

    Raises:
        ValueError, KeyError: the file is not what it should be.
    """
    import yaml  # most who read traces never ask for this list

    file = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    found = []
    for table in file["tables"]:
        source, cluster = file["sources"][table["source"]], table["cluster"]
        shared = {**source, **cluster, **file["devices"][cluster["device"]], **table["layout"]}
        shared |= {"table": table["name"], "title": f"{source['title']}, {table['part']}"}
        for row in table["rows"]:
            of_row = dict(zip(_COLUMNS, row, strict=True))
            found.append(PublishedStep(**shared, **of_row, **file["models"][row[0]]))
    return found


def is_stale(trace: Trace) -> bool:
    """Whether the list, the code or the file has changed since it was written."""
    return trace.code.digest != digest(trace.runs)


def digest(runs: Mapping[str, Run]) -> str:
    """The digest of the list, of the code that computes, and of what it gave: 16 digits."""
    found = hashlib.sha256(ROWS.read_bytes())
    for name in _CODE:
        found.update(file_digest(ROOT / "runners" / "planning" / f"{name}.py").encode())
    document = {name: run.as_json() for name, run in runs.items()}
    found.update(json.dumps(document, sort_keys=True).encode())
    return found.hexdigest()[:16]
