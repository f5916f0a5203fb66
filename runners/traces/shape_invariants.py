"""What a trace says of tensors: shapes, bytes and parameters that follow from each other. Pure.

In: a run. Out: what contradicts itself. That one stage receives the shape that the stage before it
returned is no invariant: a stage may load a batch of its own, or start from the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from runners.traces.records import Model, Run, Stage
from runners.traces.violation import Place, Violation, unless_rank

# The bytes of one element; a dtype that is not listed is not checked.
ELEMENT_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "float16": 2, "bfloat16": 2, "int16": 2, "float32": 4,
    "int32": 4, "float64": 8, "int64": 8, "complex64": 8,
}  # fmt: skip


def of_model(place: Place, run: Run) -> Iterator[Violation]:
    """Layers may name ranks that the run does not count: those of a launcher that a rank starts."""
    if run.model is not None:
        yield from _of_layers((*place, "model"), run.model)


def _of_layers(place: Place, model: Model) -> Iterator[Violation]:
    """Layers sum to the model, each parameter has the bytes of its dtype, and weights fit."""
    for field in ("num_parameters", "bytes"):
        total = sum(getattr(layer, field) for layer in model.layers)
        if model.layers and total != getattr(model, field):
            said = f"is {getattr(model, field)}, and its layers sum to {total}"
            yield Violation((*place, field), said)
    for index, layer in enumerate(model.layers):
        if layer.weight_shape and math.prod(layer.weight_shape) > layer.num_parameters:
            said = "holds more values than num_parameters says"
            yield Violation((*place, "layers", index, "weight_shape"), said)
    yield from _of_shape(place, [model.num_parameters], model.bytes, model.dtype)


def of_stages(place: Place, run: Run) -> Iterator[Violation]:
    """Stages have names of their own, hold what their shapes say, and are the only ones timed."""
    names = [stage.name for stage in run.stages]
    for index, stage in enumerate(run.stages):
        where = (*place, "stages", index)
        if names.index(stage.name) != index:
            yield Violation((*where, "name"), f"{stage.name!r} is listed twice")
        yield from _of_stage(where, stage, run.world_size)
    if not set(run.timing.stages) <= set(names):
        yield Violation((*place, "timing", "stages"), "times a stage that the run has not")
    steps = {step.name for step in run.prediction}
    if not set(run.timing.prediction) <= steps:
        yield Violation((*place, "timing", "prediction"), "times a step that the run has not")


def _of_stage(place: Place, stage: Stage, world_size: int) -> Iterator[Violation]:
    """What came out of a stage has the bytes of its shape, on the rank shown and on each other."""
    yield from _of_shape(place, stage.shape_out, stage.bytes, stage.dtype)
    if len(stage.values) > math.prod(stage.shape_out):
        yield Violation((*place, "values"), "holds more values than shape_out")
    yield from unless_rank((*place, "rank"), stage.rank, world_size)
    yield from _of_held((*place, "ranks"), stage, world_size)
    for index, move in enumerate(stage.moves):
        for end in (move.source, move.destination):
            yield from unless_rank((*place, "moves", index), end, world_size)


def _of_held(place: Place, stage: Stage, world_size: int) -> Iterator[Violation]:
    """What each rank held; the rank that is shown, held what the stage says."""
    for index, held in enumerate(stage.ranks):
        where = (*place, index)
        yield from _of_shape(where, held.shape_out, held.bytes, stage.dtype)
        yield from unless_rank((*where, "rank"), held.rank, world_size)
        shown = (stage.shape_in, stage.shape_out, stage.bytes)
        if held.rank == stage.rank and (held.shape_in, held.shape_out, held.bytes) != shown:
            yield Violation(where, "differs from the stage itself, which is of this rank")
    if len({held.rank for held in stage.ranks}) < len(stage.ranks):
        yield Violation(place, "lists a rank twice")


def _of_shape(place: Place, shape: Sequence[int], size: int, dtype: str) -> Iterator[Violation]:
    element = ELEMENT_BYTES.get(dtype.removeprefix("torch."))
    if element is not None and math.prod(shape) * element != size:
        said = f"is {size}, and the shape {list(shape)} of {dtype} has {math.prod(shape) * element}"
        yield Violation((*place, "bytes"), said)
