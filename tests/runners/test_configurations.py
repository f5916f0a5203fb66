"""Configuration files: what plans count of them, as transformers counts it, or a refusal."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM

from runners.__main__ import main
from runners.planner.answers.configuration import architecture_of
from runners.planner.answers.question import PlanError, Training
from runners.planner.program import check
from runners.planner.simulated.transformer import Part, Transformer
from tests.runners.questions import asked

PATH = Path(__file__).with_name("configurations.yml")
TABLE = yaml.safe_load(PATH.read_text(encoding="utf-8"))
BY_TYPE = {one["model_type"]: one for one in reversed(TABLE)}


def read(folder, configuration):
    path = folder / "config.json"
    path.write_text(json.dumps(configuration))
    return architecture_of(path)


def num_parameters(module):
    return sum(one.numel() for one in module.parameters())


@pytest.mark.parametrize("stated", TABLE, ids=lambda one: one["model_type"])
def test_its_parameters_are_those_of_transformers(stated, tmp_path):
    keys = {key: value for key, value in stated.items() if key != "model_type"}
    shape = read(tmp_path, stated)
    with torch.device("meta"):
        config = AutoConfig.for_model(stated["model_type"], **keys)
        public = AutoModelForCausalLM.from_config(config)
        simulated = Transformer(Part(shape, Training(sequence=32)))
    assert shape.num_parameters == num_parameters(public)
    assert num_parameters(simulated) == shape.num_parameters
    of_layers = [num_parameters(layer) for layer in simulated.layers]
    assert of_layers == [*map(shape.parameters_of_layer, range(shape.num_layers))]


@pytest.mark.parametrize("family", ["gpt_oss", "deepseek_v3"])
def test_what_is_only_simulated_has_no_outcome_on_a_device(family, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(BY_TYPE[family]))
    assert main(["plan", "outcomes", str(path)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "are simulated, and run on no device" in said


@pytest.mark.parametrize(
    ("family", "change", "why"),
    [
        ("llama", {"sliding_window": 4096}, "sliding_window: no plan has 4096"),
        ("llama", {"kv_lora_rank": 512}, "kv_lora_rank: no plan has 512; 0 is planned"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor: no plan has 0.5; 1 is"),
        ("llama", {"hidden_act": "relu"}, 'hidden_act: no plan has "relu"; "silu" is planned'),
        ("llama", {"new_expert_groups": 2}, "new_expert_groups: no plan has 2"),
        ("mistral", {"attention_bias": True}, "attention_bias: no plan has true; false is"),
        ("mistral", {"layer_types": ["sliding_attention"]}, "layer_types: no plan has these"),
        ("mixtral", {"num_local_experts": 1, "num_experts_per_tok": 1}, "experts: no plan has 1"),
        ("mixtral", {"num_local_experts": "8"}, "num_local_experts: Input should be a valid int"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window: no plan has true; false is"),
        ("qwen3_moe", {"mlp_only_layers": [3]}, r"mlp_only_layers: no plan has \[3\]; the first"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention: no plan has true"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention: no"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, "final_logit_softcapping: no plan"),
        ("gpt_oss", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types: no"),
        ("deepseek_v2", {"num_experts_per_tok": 0}, "num_experts_per_tok: Input should be greater"),
        ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq: no plan has 2; 1 is planned"),
        ("deepseek_v3", {"moe_intermediate_size": None}, "moe_intermediate_size: no plan has null"),
        ("deepseek_v2", {"qk_nope_head_dim": "128"}, 'qk_nope_head_dim: no plan has "128"'),
        ("phi3", {"partial_rotary_factor": "0.75"}, 'partial_rotary_factor: no plan has "0.75"'),
        ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers: no plan has 3"),
        ("llama", {"architectures": ["A\nB"]}, "architectures: .* has no head for causal"),
        ("llama", {"head_dim": 63}, "rotary positions turn pairs, and a head has 63"),
        ("llama", {"num_hidden_layers": 10**9}, "at most 10,000 layers are planned"),
        ("mistral", {"sliding_window": -5}, "sliding_window: Input should be greater"),
    ],
)  # fmt: skip
def test_what_is_not_planned_is_refused_by_its_name(family, change, why, tmp_path):
    with pytest.raises(PlanError, match=why) as raised:
        read(tmp_path, BY_TYPE[family] | change)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("family", "change", "why"),
    [
        ("llama", {"rope_scaling": {"rope_type": "llama3"}}, "is 'rope_scaling', with which"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, "other_values is 'rope_type', with"),
        ("qwen3_moe", {"norm_topk_prob": False}, "'norm_topk_prob', with which"),
        ("mistral", {}, "window is 4096, with which it does not train"),
        ("deepseek_v3", {}, "value_dim is 128, with"),
        ("gpt_oss", {}, "activation is 'clamped_swiglu'"),
        ("qwen2_moe", {"norm_topk_prob": True}, "shared_size is 5632, with"),
        ("gemma", {}, "activation is 'geglu', with"),
        ("olmo2", {}, "has_wide_query_key_norm is True, with"),
        ("phi3", {}, "has_fused_inputs is True, with"),
        ("llama", {}, None), ("qwen2", {}, None), ("mixtral", {}, None), ("gpt2", {}, None),
    ],
)  # fmt: skip
def test_a_program_trains_this_model_or_is_refused(family, change, why, tmp_path):
    shape = read(tmp_path, BY_TYPE[family] | change)
    question = asked("fsdp.2", 2, shape, sequence=32)
    with pytest.raises(PlanError, match=why) if why else nullcontext():
        check(question)
