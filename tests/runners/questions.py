"""Tiny models, questions about them and a tracker's peaks, which tests of plans share."""

from functools import cache

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from proofbook.companions.planner.answers import closed_form
from proofbook.companions.planner.answers.architecture import Architecture
from proofbook.companions.planner.answers.question import (
    Implementation,
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.companions.planner.simulated.one_rank import simulate_rank
from proofbook.runners.core.trace.measured import MemoryClasses

LLAMA = Architecture(
    num_layers=2, hidden_size=64, num_heads=4, num_kv_heads=4, ffn_size=128, vocabulary=256,
    context_length=32, positions="rotary", activation="swiglu", norm="rmsnorm", has_bias=False,
    has_tied_embeddings=False,
)  # fmt: skip
GPT = LLAMA.model_copy(
    update={"positions": "learned", "activation": "gelu", "norm": "layernorm", "has_bias": True}
)


def changed(shape, **change):
    return Architecture(**{**shape.model_dump(), **change})


def asked(strategy, devices=4, shape=LLAMA, **how):
    """What a rank needs for a step of a tiny model."""
    training = {name: one for name, one in how.items() if name in TrainingSettings.model_fields}
    implementation = {name: one for name, one in how.items() if name not in training}
    question = Question(
        model=PlannedModel(name="tiny", architecture=shape),
        training=TrainingSettings(
            **{"sequence": shape.context_length, "global_batch": 8, **training}
        ),
        implementation=Implementation(**implementation),
        strategy=strategy_of(strategy, devices),
    )
    question.check_simulation()
    return question


def simulated(strategy, devices=4, shape=LLAMA, rank=0, **how):
    """The simulation of a rank for such a step, which is simulated once for all tests of a file."""
    return _simulated(asked(strategy, devices, shape, **how).model_dump_json(), rank)


@cache
def _simulated(question, rank):
    return simulate_rank(Question.model_validate_json(question), rank)


def by_forms(questions, num_workers=1):
    """Answers without a simulation, for tests that read nothing that only that knows."""
    unknown = {"at_peak": MemoryClasses(**dict.fromkeys(MemoryClasses.model_fields, 0))}
    answers = [closed_form.answer(one) for one in questions]
    for one in answers:
        one.ranks[:] = [rank.model_copy(update=unknown) for rank in one.ranks]
    return answers


def tracked_peak(build, batch, loss_of):
    """The peak of a second step of Adam, in bytes of tensors.

    Args:
        build: the module.
        batch: its arguments, which are there until the backward pass ends.
        loss_of: the module's loss of a batch.
    """
    with FakeTensorMode():
        model = build()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
        for _ in range(2):
            tracker = MemTracker()
            tracker.track_external(model, optimizer)
            with tracker:
                given = batch()
                loss_of(model, given).backward()
                optimizer.step()
                optimizer.zero_grad()
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
