"""Configuration files: what plans count of them, as transformers counts it, or a refusal."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM

from proofbook.companions.planner.answers.architecture import model_presets
from proofbook.companions.planner.answers.configuration import architecture_of
from proofbook.companions.planner.answers.models import model_of
from proofbook.companions.planner.answers.question import (
    PlanError,
    TrainingSettings,
)
from proofbook.companions.planner.command import _parameters
from proofbook.companions.planner.simulated.layers import RankPlan
from proofbook.companions.planner.simulated.transformer import RankTransformer
from proofbook.runners.__main__ import main

PATH = Path(__file__).with_name("configurations.yml")
TABLE = yaml.safe_load(PATH.read_text(encoding="utf-8"))
BY_TYPE = {one["model_type"]: one for one in reversed(TABLE)}


def written(folder, configuration):
    path = folder / "config.json"
    path.write_text(json.dumps(configuration))
    return path


def read(folder, configuration):
    return architecture_of(written(folder, configuration))


def num_parameters(module):
    return sum(one.numel() for one in module.parameters())


@pytest.mark.parametrize("stated", TABLE, ids=lambda one: one["model_type"])
def test_its_parameters_are_those_of_transformers(stated, tmp_path):
    fewer = {key: min(stated[key], 8) for key in ("num_hidden_layers", "n_layer") if key in stated}
    stated = stated | fewer
    keys = {key: value for key, value in stated.items() if key != "model_type"}
    shape = read(tmp_path, stated)
    with torch.device("meta"):
        config = AutoConfig.for_model(stated["model_type"], **keys)
        public = AutoModelForCausalLM.from_config(config)
    assert shape.num_parameters == num_parameters(public)
    assert read(tmp_path, config.to_dict()).num_parameters == shape.num_parameters
    if shape.pattern:
        of_layers = map(num_parameters, public.model.layers)
        assert [*of_layers] == [*map(shape.parameters_of_layer, range(shape.num_layers))]
        return  # closed forms alone
    with torch.device("meta"):
        simulated = RankTransformer(RankPlan(shape, TrainingSettings(sequence=32)))
    assert num_parameters(simulated) == shape.num_parameters
    of_layers = [num_parameters(layer) for layer in simulated.layers]
    assert of_layers == [*map(shape.parameters_of_layer, range(shape.num_layers))]


@pytest.mark.parametrize(
    ("family", "change", "why"),
    [
        ("llama", {"sliding_window": 4096}, "sliding_window: no plan has 4096"),
        ("llama", {"kv_lora_rank": 512}, "kv_lora_rank: no plan has 512; 0 is planned"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor: no plan has 0.5; 1 is"),
        ("llama", {"hidden_act": "relu"}, 'hidden_act: no plan has "relu"; "silu" is planned'),
        ("mistral", {"layer_types": ["sliding_attention"]}, "layer_types: no plan has these"),
        ("mixtral", {"num_local_experts": 1, "num_experts_per_tok": 1}, "experts: no plan has 1"),
        ("mixtral", {"num_local_experts": "8"}, "num_local_experts: Input should be a valid int"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window: no plan has true; false is"),
        ("qwen3_moe", {"mlp_only_layers": [3]}, r"mlp_only_layers: no plan has \[3\]; the first"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention: no plan has true"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention: no"),
        ("gpt_oss", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types: no"),
        ("deepseek_v2", {"num_experts_per_tok": 0}, "num_experts_per_tok: Input should be greater"),
        ("deepseek_v3", {"moe_intermediate_size": None}, "moe_intermediate_size: no plan has null"),
        ("deepseek_v2", {"qk_nope_head_dim": "128"}, 'qk_nope_head_dim: no plan has "128"'),
        ("llama", {"architectures": ["A\nB"]}, "architectures: .* has no head for causal"),
        ("llama", {"head_dim": 63}, "rotary positions turn pairs, and a head has 63"),
        ("llama", {"num_hidden_layers": 10**9}, "at most 1,000 layers are planned"),
        ("llama", {"hidden_size": 10**12}, "at most 100,000,000,000,000 parameters are planned"),
        ("mistral", {"sliding_window": -5}, "sliding_window: Input should be greater"),
        ("llama", {"num_hidden_layer": 2}, "no such key is known .did you mean num_hidden_layers"),
        ("qwen2", {"num_layer_groups": None}, "num_layer_groups: no such key is known"),
        ("deepseek_v3", {"quantization_config": {"quant_method": "fp8"}}, "to 8 bits, .*remove"),
        ("llama", {"quantization_config": {"load_in_4bit": True}}, "to 4 bits.*the embedding, the"),
        ("llama", {"quantization_config": {"bits": 4, "modules_to_not_convert": ["lm_head"]}},
         r"do not train \(lm_head stay in 16\); add --lora --frozen-bits 4"),
        ("llama", {"peft_type": "LORA"}, "describes an adapter; name the model's config.json"),
        ("llama", {"model_type": None}, "states no model_type; name a model's config.json"),
        ("llama", {"num_attention_heads": 11}, "11 heads do not divide a width of 4096"),
        ("llama", {"num_key_value_heads": 5}, "5 heads of keys do not divide 32"),
        ("nemotron_h", {"hybrid_override_pattern": "M?"}, "M. has no letter of M.-E for each"),
        ("nemotron_h", {"use_bias": True}, "use_bias: no plan has true; false is planned"),
        ("llama", {"attention_dropout": 0.1}, "attention_dropout: no plan has 0.1; 0 is"),
    ],
)  # fmt: skip
def test_what_is_not_planned_is_refused_by_its_name(family, change, why, tmp_path):
    with pytest.raises(PlanError, match=why) as raised:
        read(tmp_path, BY_TYPE[family] | change)
    assert "\n" not in str(raised.value)


DEEPSEEK = {"num_hidden_layers": 61, "first_k_dense_replace": 3, "q_lora_rank": 1536}
KIMI = {"model_type": "kimi_k2", "first_k_dense_replace": 1, "n_routed_experts": 384,
        "num_attention_heads": 64, "vocab_size": 163840}  # fmt: skip

NANO = {"hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"}
SUPER = {
    "hidden_size": 4096, "moe_latent_size": 1024, "n_routed_experts": 512, "mamba_num_heads": 128,
    "num_experts_per_tok": 22, "moe_intermediate_size": 2688,
    "moe_shared_expert_intermediate_size": 5376, "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEM"
    "EMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
}  # fmt: skip


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        (BY_TYPE["llama"], ", 8.0 B parameters"),
        (BY_TYPE["mixtral"], ", 46.7 B parameters (12.9 B active)"),
        (BY_TYPE["deepseek_v3"] | DEEPSEEK, ", 671.0 B parameters (37.6 B active)"),
        (BY_TYPE["deepseek_v3"] | DEEPSEEK | KIMI, ", 1026.4 B parameters (32.9 B active)"),
        (BY_TYPE["nemotron_h"] | NANO, ", 31.6 B parameters (3.6 B active)"),
        (BY_TYPE["nemotron_h"] | SUPER, ", 120.7 B parameters (12.8 B active)"),
    ],
)
def test_the_title_has_the_published_parameters_in_all_and_active(configuration, said, tmp_path):
    assert _parameters(model_of(str(written(tmp_path, configuration)))) == said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--devices", "1000000"], "at most 131,072 devices are planned"),
        (["--sequence", "999999999999"], "is no whole number from 1 to 100,000,000"),
        (["--microbatch", "9" * 5000], "is no whole number from 1 to 100,000,000"),
        (["--loss-chunks", "2000"], "is no whole number from 1 to 1,024"),
        (["--memory", "1e30"], "'1e30' is no memory of a device in GiB"),
        (["--flops", "inf"], "'inf' is no rate of a device in FLOP/s, such as 989e12"),
        (["--tokens", "many"], "'many' is no number of tokens, such as 1e12 or 15T"),
        (["--links", "450,fast"], "'fast' is no rate of a link in GB/s, such as 450,50"),
        (["--flops", "989"], "989 TFLOP/s are 989e12"),
        (["--devices", "3x"], "'3x' lacks a number: 8 devices, or 2x8"),
        (["--precision", "fp8"], "fp8 is not planned; only products would be in 8 bits"),
        (["--strategies", "ddp,,fsdp"], "'ddp,,fsdp' names no strategy"),
        (["--lora", "0"], "'0' is no whole number from 1 to 4,096"),
    ],
)
def test_what_no_plan_has_is_one_line(words, why, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "for", "llama-8b", *words])
    assert why in capsys.readouterr().err.splitlines()[-1]


NO_SIZES = {"model_type": "gpt2", "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}


def test_a_configuration_file_gives_the_published_size(tmp_path):
    llama = read(tmp_path, BY_TYPE["llama"])
    assert llama.num_parameters == PRESETS["llama-8b"]
    tied = read(tmp_path, BY_TYPE["llama"] | {"tie_word_embeddings": True})
    assert llama.num_parameters - tied.num_parameters == 128256 * 4096


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no configuration file"),
        ("[1, 2]", "holds no object in JSON; name a model's config.json"),
        (json.dumps({"model_type": "bert"}), "'bert' is not known"),
        (json.dumps({"model_type": "gemma2"}), "soft caps .* no plan has; near is gemma3_text"),
        (json.dumps({"model_type": "gemma3", "text_config": {}}), "more than a language model"),
        (json.dumps({"model_type": "llama"}), "num_hidden_layers or n_layer: Field required"),
        (json.dumps(NO_SIZES), "n_layer: Field required"),
    ],
)
def test_a_file_that_is_no_such_configuration_is_refused_in_one_line(text, why, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=why) as raised:
        architecture_of(path)
    assert "\n" not in str(raised.value)


# Counted by others from the tensors of the published checkpoints, to the last parameter.
PRESETS = {
    "gpt2-124m": 124_439_808,
    "gpt2-1.5b": 1_557_611_200,
    "llama-1b": 1_235_814_400,
    "llama-8b": 8_030_261_248,
    "llama-13b": 13_015_864_320,
    "llama-70b": 70_553_706_496,
    "mixtral-8x7b": 46_702_792_704,
    "llama-405b": 405_853_388_800,
    # Without the module that predicts further tokens, and without 58 × 256 biases of the routers.
    "deepseek-v3": 671_026_419_200 - 58 * 256,
}


def test_the_closed_form_gives_the_published_number_of_parameters():
    found = {name: one.architecture.num_parameters for name, one in model_presets().items()}
    assert found == PRESETS
