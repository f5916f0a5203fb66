"""Closed forms of a rank beside its simulation, by axis: memory, bytes that are sent, FLOPs."""

from collections import Counter
from statistics import median

import pytest

from proofbook.runners.planner.answers import closed_form
from proofbook.runners.planner.answers.answer import answers_of
from proofbook.runners.planner.answers.architecture import model_presets
from proofbook.runners.planner.answers.plan_grid import read_grid
from proofbook.runners.planner.answers.search import SLACK
from proofbook.runners.planner.simulated.grid import GRIDS, PLANS
from proofbook.runners.planner.simulated.one_rank import simulate_rank
from tests.runners.questions import asked, changed

SHAPES = {
    name: changed(model_presets()[name].architecture, num_layers=layers)
    for name, layers in {"llama-1b": 4, "llama-8b": 2, "mixtral-8x7b": 4}.items()
}
NEAR = 0.12  # by which memory may differ
ALL = {"checkpointing": "all"}
SELECTIVE = {"checkpointing": "selective"}
CASES = [  # model, strategy, devices, settings; a sample for each device but where they say
    ("llama-1b", "single", 1, {}),
    ("llama-1b", "single", 1, {"loss_chunks": 8}),
    ("llama-1b", "ddp", 8, {"global_batch": 16}),
    ("llama-1b", "ddp-view", 8, {}),
    ("llama-1b", "zero1", 8, {}),
    ("llama-8b", "zero1", 64, {"global_batch": 128}),
    ("llama-8b", "fsdp", 8, {}),
    ("llama-8b", "fsdp", 8, SELECTIVE),
    ("llama-1b", "fsdp", 64, {"global_batch": 128}),
    ("llama-8b", "fsdp", 128, ALL),
    ("llama-1b", "fsdp", 8, {"precision": "fp32"}),
    ("llama-8b", "fsdp-keep", 8, {}),
    ("llama-1b", "hsdp.2.8", 16, {}),
    ("llama-1b", "fsdp.16.8", 16, {}),
    ("llama-8b", "tp.4", 4, {}),
    ("llama-8b", "tp-sp.8", 8, {}),
    ("llama-8b", "tp-sp.8", 8, ALL),
    ("llama-8b", "tp-sp-keep.8", 8, {}),
    ("llama-8b", "fsdp.8+tp-sp.4", 32, {}),
    ("llama-1b", "1f1b.4", 4, {"global_batch": 8}),
    ("llama-1b", "gpipe.4", 4, {"global_batch": 4}),
    ("llama-1b", "interleaved.2", 2, {"global_batch": 4}),
    ("llama-8b", "1f1b.2+zero1.2", 4, {"global_batch": 4}),
    ("llama-1b", "cp.8", 8, {"global_batch": 1}),
    ("llama-8b", "fsdp.1+cp.8", 8, {"global_batch": 1, "sequence": 131_072}),
    ("llama-8b", "fsdp.2+cp.4", 8, {"global_batch": 2, "sequence": 32_768}),
    ("mixtral-8x7b", "fsdp", 16, {}),
    ("mixtral-8x7b", "fsdp.8+ep.8", 8, {}),
    ("mixtral-8x7b", "fsdp.16+ep.8", 16, ALL),
    ("mixtral-8x7b", "zero1.16+ep.8", 16, {}),
    ("mixtral-8x7b", "tp-sp.8", 8, {}),
]


@pytest.mark.parametrize(("model", "strategy", "devices", "settings"), CASES)
def test_each_axis_holds_sends_and_computes_what_its_simulation_does(
    model, strategy, devices, settings
):
    """The last stage of a pipeline stands for the others, since it has the logits."""
    training = {"sequence": 4096, "global_batch": devices, **settings}
    question = asked(strategy, devices, SHAPES[model], **training)
    formed = closed_form.answer(question).ranks[-1]
    found = simulate_rank(question, question.ranks[-1])
    assert formed.reserved_bytes == pytest.approx(found.reserved_bytes, rel=NEAR)
    assert formed.flops == pytest.approx(found.flops, rel=0.01)
    assert formed.num_parameters == pytest.approx(found.num_parameters, rel=0.01)
    sent, expected = _bytes(formed), _bytes(found)
    assert sent.keys() == expected.keys()
    for call, size in sent.items():
        assert size == pytest.approx(expected[call], rel=0.01), call
    groups = [one.num_communicators(question.num_microbatches) for one in (formed, found)]
    assert groups[0] == groups[1]


def _bytes(rank):
    """Of each collective on each axis; without sums of the loss and of norms, which are small."""
    found, axes = Counter(), Counter()
    for one in rank.calls:
        if one.operation not in ("broadcast", "recv"):
            found[one.operation, one.axis] += one.bytes
            axes[one.axis] += one.bytes
    return {call: size for call, size in found.items() if size > 0.01 * axes[call[1]]}


@pytest.mark.parametrize("preset", GRIDS)
def test_no_layout_is_left_out_since_its_closed_form_is_far_too_high(preset):
    """On committed grids; nor too low, but for free segments that no block fits into."""
    offs, low = list[float](), list[float]()
    for answer in answers_of(read_grid(PLANS / f"{preset}.json")).values():
        formed = closed_form.answer(answer.question)
        held, its = (max(r.reserved_bytes for r in one.ranks) for one in (answer, formed))
        offs.append(its / held - 1)
        low.append(its / max(rank.allocated_bytes for rank in answer.ranks) - 1)
    assert max(offs) < SLACK - 1
    assert min(low) > -0.05
    assert median(map(abs, offs)) < 0.06
