"""Programs of planned layouts: what they train and need, against one process and their plans."""

import re
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import pipelining as pp

from proofbook.runners.planner.answers.architecture import model_presets
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.question import (
    PlanError,
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.runners.planner.program import check, program_of, strategies_with_program
from proofbook.runners.planner.simulated.one_rank import simulate_rank
from proofbook.runners.simulate.caching_allocator import replay
from proofbook.runners.simulate.fake_mode import ValuelessMode
from proofbook.runners.simulate.meter import Meter
from proofbook.runners.simulate.stand_ins import simulating_rank
from tests.judged import judged
from tests.processes import python
from tests.runners.program_ranks import LAYOUTS, NUM_STEPS, loaded, trained
from tests.runners.questions import asked, changed


def question(layout, devices, preset, shape=None, **changes):
    """The question of a plan, by default in fp32."""
    training = {"sequence": 1024, "global_batch": 64, "precision": "fp32", **changes}
    shape = shape or model_presets()[preset].architecture
    return Question(
        model=PlannedModel(name=preset, architecture=shape),
        training=TrainingSettings(**training),
        strategy=strategy_of(layout, devices),
    )


def written(path, layout, devices, preset, **how):
    """A program's file, by default of a question of this layout."""
    planned = how.get("planned") or question(layout, devices, preset, **how)
    cluster = Cluster(1, devices, 1e15, 1e11, 1e11)
    path.write_text(program_of(planned, cluster, path, "No plan."), encoding="utf-8")
    return path


OWN = PlannedModel(name="mine:build", module="mine:build", batch="mine:batch")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for ranks, layout, devices, preset, changes in LAYOUTS:
        written(folder / f"{ranks}-{layout}.py", layout, devices, preset, **changes)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same of a model of so many layers trained whole, on whole batches, by our own loop."""
    path = tmp_path_factory.mktemp("alone") / "one.py"

    @cache
    def trained_alone(preset, num_layers):
        return _trained_alone(loaded(written(path, "single", 1, preset)), num_layers)

    return trained_alone


def _trained_alone(program, num_layers):
    plan = replace(program.made_small(program.PLAN, 1), num_layers=num_layers)
    model = program.TransformerStage(plan, 0)
    program.initialize(model, torch.device("cpu"))
    kept = {one for name, one in model.named_parameters() if re.search("norm|bias", name)}
    groups = [{"params": list(kept), "weight_decay": 0.0}]
    groups += [{"params": [one for one in model.parameters() if one not in kept]}]
    optimizer = torch.optim.AdamW(groups, program.LEARNING_RATE, weight_decay=program.WEIGHT_DECAY)
    ours = program.optimizer_of(plan, list(model.parameters())).param_groups
    assert {one for group in ours if not group["weight_decay"] for one in group["params"]} == kept
    found = []
    for step in range(NUM_STEPS):
        tokens, targets = program.batch(plan, None, step, 0)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), program.MAX_NORM)
        optimizer.step()
        found.append([loss.item(), norm.item()])
    return found


@pytest.mark.ranks
@pytest.mark.parametrize(("ranks", "layout", "_", "preset", "changes"), LAYOUTS)
def test_a_layout_trains_as_one_process_does(ranks, layout, _, preset, changes, programs, alone):
    tolerance = 2e-5 if changes.get("precision", "fp32") == "fp32" else 3e-2
    path = programs / f"{ranks}-{layout}.py"
    steps = judged(trained, ranks, path)[-1].returned
    program = loaded(path)
    num_layers = program.made_small(program.PLAN, ranks).num_layers
    for ours, whole in zip(steps, alone(preset, num_layers), strict=True):
        assert ours == pytest.approx(whole, rel=tolerance)
    assert all(later[0] < sooner[0] for sooner, later in pairwise(steps))


@pytest.mark.parametrize(
    ("preset", "change", "turned"),
    [
        ("gpt2-1.5b", {}, None),
        ("llama-8b", {}, 64),
        ("mixtral-8x7b", {}, 64),
        ("llama-1b", {"head_dim": 128, "rotary_size": 32}, 16),  # wider than the hidden size
    ],
)
def test_a_program_has_the_planned_model_and_layout(preset, change, turned, tmp_path):
    """At full size, on the meta device: the closed form of the plan counts as many parameters."""
    shape = changed(model_presets()[preset].architecture, **change)
    program = loaded(written(tmp_path / "one.py", "fsdp", 8, preset, shape=shape))
    plan = program.PLAN
    with torch.device("meta"):
        model = program.TransformerStage(plan, 0)
        if preset != "mixtral-8x7b":  # whose routing needs values
            logits = model(torch.zeros(1, plan.sequence, dtype=torch.long))
            assert logits.shape == (1, plan.sequence, shape.vocabulary)
    assert sum(one.numel() for one in model.parameters()) == shape.num_parameters
    assert (plan.data, plan.num_microbatches) == (8, 8)
    if turned:
        assert program.rotations_of(plan, torch.device("cpu")).shape == (plan.sequence, turned)


@pytest.mark.parametrize(
    ("layout", "devices"),
    [("fsdp", n) for n in range(1, 8)]
    + [("1f1b.2+zero1.3", 6), ("fsdp.3+tp-sp-keep.2", 6), ("single", 8)],
)
def test_a_program_names_a_number_of_ranks_that_its_small_layout_has(layout, devices, tmp_path):
    program = loaded(written(tmp_path / "one.py", layout, devices, "llama-8b"))
    (ranks,) = map(int, re.findall(r"--nproc-per-node (\d+) one.py --small", program.__doc__))
    plan = program.made_small(program.PLAN, ranks)
    assert plan.data * plan.tensor * plan.pipeline == ranks <= devices
    (launched,) = map(int, re.findall(r"--nproc-per-node (\d+) one.py --tokens", program.__doc__))
    assert launched == program.PLAN.data * program.PLAN.tensor * program.PLAN.pipeline


def test_programs_are_formatted(programs):
    words = ["ruff", "format", "--check", "--isolated", "--line-length", "100", str(programs)]
    done = python("-m", *words)
    assert done.returncode == 0, done.stdout


def test_a_layer_of_gpt_2_is_torchs_own_encoder_layer(tmp_path):
    program = loaded(written(tmp_path / "one.py", "single", 1, "gpt2-124m"))
    plan = program.made_small(program.PLAN, 1)
    layer = program.TransformerLayer(plan)
    oracle = nn.TransformerEncoderLayer(
        plan.hidden_size, plan.num_heads, plan.ffn_size, 0.0, "gelu", batch_first=True,
        norm_first=True,
    )  # fmt: skip
    parts = (layer.attention.query, layer.attention.key, layer.attention.value)
    with torch.no_grad():
        oracle.self_attn.in_proj_weight.copy_(torch.cat([one.weight for one in parts]))
        oracle.self_attn.in_proj_bias.copy_(torch.cat([one.bias for one in parts]))
        for name, ours in (
            ("self_attn.out_proj", layer.attention.output),
            ("linear1", layer.ffn.inner),
            ("linear2", layer.ffn.outer),
            ("norm1", layer.attention_norm),
            ("norm2", layer.ffn_norm),
        ):
            oracle.get_submodule(name).load_state_dict(ours.state_dict())
    x = torch.randn(2, 16, plan.hidden_size)
    mask = nn.Transformer.generate_square_subsequent_mask(16)
    torch.testing.assert_close(layer(x, None), oracle(x, src_mask=mask, is_causal=True))


def test_rotary_positions_leave_products_that_depend_on_distance_alone(tmp_path):
    program = loaded(written(tmp_path / "one.py", "single", 1, "llama-1b"))
    rotations = program.rotations_of(replace(program.PLAN, head_size=8), torch.device("cpu"))[:9]
    one, other = torch.randn(2, 1, 1, 1, 8)
    query, key = (program.rotated(x.expand(1, 9, 1, 8), rotations)[0, :, 0] for x in (one, other))
    torch.testing.assert_close(query[2] @ key[0], query[8] @ key[6])
    assert not torch.allclose(query[2] @ key[0], query[8] @ key[0])


@pytest.mark.parametrize(
    ("layout", "devices", "changes", "why"),
    [
        ("1f1b.2+ddp.2", 4, {}, "name zero1"),
        ("fsdp.2+cp.2", 4, {}, "kernels of CUDA"),
        ("fsdp", 4, {"optimizer": "adam8bit"}, "8-bit Adam"),
        ("fsdp", 4, {"precision": "bf16"}, "bf16-mixed"),
        ("1f1b.2+fsdp.2", 4, {}, "name zero1, not fsdp"),
        ("single", 1, {"model": OWN}, r"^no program: .* presets, and for files"),
    ],
)
def test_a_plan_without_a_program_is_refused_in_one_line(layout, devices, changes, why):
    model = {one: changes[one] for one in changes.keys() & {"model"}}
    given = {one: changes[one] for one in changes.keys() - model}
    asked_of = question(layout, devices, "llama-8b", **given).model_copy(update=model)
    with pytest.raises(PlanError, match=why) as raised:
        check(asked_of)
    assert "\n" not in str(raised.value)


def test_each_layout_that_a_search_for_a_program_tries_has_one():
    for name in ("llama-8b", "gpt2-1.5b"):
        asked = question("single", 1, name)
        for one in strategies_with_program(
            asked.model, asked.training, Cluster(2, 8, 1e15, 1e11, 1e11)
        ):
            check(question(one.name, 16, name))
            assert one.keeps_gathered == (one.tensor > 1)


def stage(plan, module, index, total, device, group):
    """A stage that is told what it receives: other ranks, which are not there, cannot tell it."""
    dtype = torch.bfloat16 if plan.precision == "bf16-mixed" else torch.float32
    empty = partial(torch.empty, plan.microbatch, dtype=dtype, requires_grad=True)
    ids = torch.zeros(plan.microbatch, plan.sequence, dtype=torch.long)
    hidden = empty(plan.sequence // plan.tensor, plan.hidden_size)
    given = (ids, None) if index == 0 else (hidden, hidden.detach())
    logits = empty(plan.sequence, plan.vocabulary // plan.tensor)
    made = (logits, None) if index == total - 1 else (hidden, hidden.detach())
    one = pp.stage.PipelineStage(module, index, total, device, given[0], *made, given[1], group)
    one._inference_mode = pp.stage.InferenceMode.STATIC
    return one


def simulated(program, rank):
    """Bytes that the allocator gives out at the peak of two steps, and that it reserves."""
    plan, meshes = program.PLAN, []
    with (
        simulating_rank(rank, plan.pipeline * plan.data * plan.tensor, meshes),
        patch.object(pp, "PipelineStage", partial(stage, plan)),
        patch.object(pp.schedules._PipelineSchedule, "_warmup_p2p", lambda *_: None),
        ValuelessMode(),
        Meter(meshes) as meter,
    ):
        dist.init_process_group()
        program.train(plan, torch.device("cpu"), 2, None)
        return replay(meter.events())


@pytest.mark.parametrize("one", [one for one in LAYOUTS if one[3] != "mixtral-8x7b"])
def test_a_program_needs_what_its_plan_says(one, tmp_path):
    """What it reserves depends on the order of its allocations, too; a plan repeats keys."""
    (_, layout, devices, preset, changes), path = one, tmp_path / "one.py"
    shape, strategy = model_presets()[preset].architecture, strategy_of(layout, devices)
    small = {"num_layers": max(2, strategy.num_stages), "norm": "layernorm"}
    shape = changed(shape, **small, num_kv_heads=shape.num_heads, vocabulary=32_768)
    how = {"sequence": 4096, "precision": "fp32", "has_zero1_of_fsdp": True}
    how["global_batch"] = 2 * strategy.num_stages * strategy.data
    planned = asked(layout, devices, shape, **{**how, **changes})
    written(path, layout, devices, preset, planned=planned)
    for rank in planned.ranks:
        plan, needed = simulate_rank(planned, rank), simulated(loaded(path), rank)
        assert needed.allocated_bytes == pytest.approx(plan.allocated_bytes, rel=0.02)
        assert needed.reserved_bytes <= 1.08 * plan.reserved_bytes
