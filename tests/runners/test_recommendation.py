"""One recommendation: what is searched, how it is justified, and what would turn it."""

import json

import pytest

from runners.planner.answers import closed_form
from runners.planner.answers.answer import GIB, Answer, layouts
from runners.planner.answers.architecture import model_presets
from runners.planner.answers.configuration import architecture_of
from runners.planner.answers.estimate import ALIKE
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.question import Model, PlanError, Question, Training, strategy_of
from runners.planner.answers.recommendation import (
    MOST,
    Found,
    recommendation_lines,
    search,
    strategies,
)
from runners.planner.simulated.processes import answers
from tests.runners.questions import LLAMA, asked, changed

SMALL = changed(LLAMA, hidden_size=256, ffn_size=1024, vocabulary=1000, context_length=128)
MODEL = Model(name="small", architecture=SMALL)
TRAINING = Training(sequence=128, global_batch=8)
RATES = (989e12, 450e9, 400e9)  # of an H100
CLUSTER = Cluster(2, 2, 1e15, within=1e15, between=1e15)


@pytest.fixture(scope="module")
def found():
    """All layouts of a small model on two nodes of two devices, with ample memory."""
    questions = [asked_of(one) for one in strategies(CLUSTER)]
    return answers([one for one in questions if one])


def asked_of(strategy, model=MODEL, training=TRAINING):
    question = Question(model=model, training=training, strategy=strategy)
    try:
        question.check()
    except PlanError:
        return None
    return question


def single(model, training):
    return Question(model=model, training=training, strategy=strategy_of("single", 1))


def by_forms(questions):
    """Answers without a simulation; none of these tests reads what only that knows."""
    return [closed_form.answer(one) for one in questions]


@pytest.mark.builds
def test_no_layout_that_fits_is_faster_than_the_recommended_one(found):
    best, *others = layouts(found, CLUSTER, 80 * GIB)
    assert len(others) > 8
    assert all(ALIKE * one.estimate.seconds > best.estimate.seconds for one in others)
    near = [one for one in others if best.is_as_fast_as(one)]
    assert all(one.parts >= best.parts for one in near)
    lines = recommendation_lines(Found(found, 0, []), CLUSTER, 80 * GIB)
    assert lines[0] == f"recommended: {best.name}"
    assert "tokens a second on all devices" in lines[2]
    assert lines[-1] == f"tried:       {len(found)} layouts simulated"


@pytest.mark.builds
def test_slow_links_between_nodes_turn_the_choice(found):
    """What sends least between nodes is a pipeline; over equal links it idles."""
    best = layouts(found, CLUSTER, 80 * GIB)[0]
    slow = Cluster(2, 2, 1e15, within=1e15, between=1e8)
    other = layouts(found, slow, 80 * GIB)[0]
    assert best.answer.question.strategy.pipeline == 1
    assert other.answer.question.strategy.pipeline == 2
    assert other.bounds.between < best.answer.bounds(slow).between


@pytest.mark.builds
def test_where_nothing_fits_a_line_says_what_would_or_what_was_not_tried(found):
    with pytest.raises(PlanError, match=r"^no layout fits 1 GiB; the least needs \d"):
        recommendation_lines(Found(found, 0, []), CLUSTER, GIB)
    with pytest.raises(PlanError, match=r"^no answer yet: .*; 7 others not simulated$"):
        recommendation_lines(Found(found, 7, []), CLUSTER, GIB)


def test_a_search_simulates_the_fastest_by_closed_forms_two_at_a_time():
    rounds = []

    def simulate(some):
        rounds.append(some)
        return by_forms(some)

    model = Model(name="8b", architecture=model_presets()["llama-8b"].architecture)
    training, cluster = Training(sequence=4096, global_batch=16), Cluster(2, 8, *RATES)
    found = search(single(model, training), cluster, 80 * GIB, simulate)
    assert [len(one) for one in rounds] == [2]
    assert len({one.strategy.name for one in rounds[0]}) == 2
    assert search(single(model, training), cluster, 80 * GIB, by_forms) == found
    every = [one for one in strategies(cluster) if asked_of(one, model, training)]
    fitting = layouts(by_forms(asked_of(one, model, training) for one in every), cluster, 80 * GIB)
    best = layouts(found.answers, cluster, 80 * GIB)[0]
    assert best.estimate.seconds <= ALIKE * fitting[0].estimate.seconds


@pytest.mark.parametrize(
    ("name", "cluster", "memory", "sequence"),
    [
        ("mixtral-8x7b", (2, 8), 80, 4096),  # fits with recomputation
        ("llama-13b", (1, 8), 40, 4096),
        ("llama-8b", (1, 8), 80, 131_072),  # fits if ranks divide a sample
    ],
)
def test_what_fits_by_closed_forms_is_found_however_little_it_is(name, cluster, memory, sequence):
    model = Model(name=name, architecture=model_presets()[name].architecture)
    devices = Cluster(*cluster, *RATES)
    training = Training(sequence=sequence, global_batch=devices.num_devices)
    found = search(single(model, training), devices, memory * GIB, by_forms)
    assert layouts(found.answers, devices, memory * GIB)


def test_more_layouts_than_a_search_simulates_are_no_proof_that_none_fits():
    """A simulation finds that each needs twice what the closed forms say."""

    def simulate(some):
        doubled = by_forms(some)
        for one in doubled:
            one.ranks = [
                rank.model_copy(update={"reserved_bytes": 2 * rank.reserved_bytes})
                for rank in one.ranks
            ]
        return doubled

    model = Model(name="8b", architecture=model_presets()["llama-8b"].architecture)
    training, cluster = Training(sequence=4096, global_batch=8), Cluster(1, 8, *RATES)
    found = search(single(model, training), cluster, 14 * GIB, simulate)
    assert found.num_left or len(found.answers) < MOST
    with pytest.raises(PlanError, match="^no answer yet" if found.num_left else "^no layout fits"):
        recommendation_lines(found, cluster, 14 * GIB)


def test_what_needs_far_too_much_is_refused_without_a_simulation():
    model = Model(name="70b", architecture=model_presets()["llama-70b"].architecture)
    training, cluster = Training(sequence=4096, global_batch=8), Cluster(1, 8, *RATES)
    found = search(single(model, training), cluster, 80 * GIB, by_forms)
    assert not found.answers
    with pytest.raises(PlanError, match=r"^no layout fits 80 GiB; .*by closed forms, needs 14\d"):
        recommendation_lines(found, cluster, 80 * GIB)


def test_where_no_state_fits_the_recommendation_says_just_that():
    unfit = Answer(question=asked("ddp"), seconds=0, reason="the optimizer alone needs more")
    with pytest.raises(PlanError, match=r"^the optimizer alone needs more"):
        recommendation_lines(Found([unfit], 0, []), CLUSTER, GIB)


def test_tensor_parallelism_is_searched_within_a_node_alone():
    for one in strategies(Cluster(4, 2, 1e15, 1e11, 1e10)):
        assert one.num_devices in (1, 8)
        assert one.tensor <= 2


FILE = {  # of Llama 8B
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 131072,
}  # fmt: skip


def test_a_configuration_file_gives_the_published_size(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FILE))
    read = architecture_of(path)
    preset = model_presets()["llama-8b"]
    assert read.num_parameters == preset.architecture.num_parameters
    assert abs(read.num_parameters - 8_030_000_000) < 10_000_000  # as its model card says
    path.write_text(json.dumps(FILE | {"tie_word_embeddings": True}))
    assert read.num_parameters - architecture_of(path).num_parameters == 128256 * 4096


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no configuration file"),
        (json.dumps({"model_type": "bert"}), "'bert' is not known"),
        (json.dumps({"model_type": "llama"}), "num_hidden_layers or n_layer: Field required"),
        (json.dumps({"model_type": "gpt2", "n_embd": None}), "n_layer: Field required"),
        (json.dumps(FILE | {"num_attention_heads": 11}), "11 heads do not divide a width of 4096"),
        (json.dumps(FILE | {"num_key_value_heads": 5}), "5 heads of keys do not divide 32"),
        (json.dumps(FILE | {"attention_dropout": 0.1}), "attention_dropout: no plan has 0.1; 0.0"),
        (json.dumps(FILE | {"quantization_config": {"bits": 4}}), "quantization_config: no plan"),
        (json.dumps(FILE | {"n_shared_experts": 2}), "n_shared_experts: no plan has 2"),
        (json.dumps(FILE | {"decoder_sparse_step": 2}), "decoder_sparse_step: no plan has 2"),
        (json.dumps(FILE | {"mlp_only_layers": [0]}), r"mlp_only_layers: no plan has \[0\]"),
        (json.dumps(FILE | {"layer_types": ["sliding_attention"]}), "layer_types: no plan"),
        (
            json.dumps(FILE | {"architectures": ["LlamaForSequenceClassification"]}),
            "has no head for causal",
        ),
    ],
)
def test_a_file_that_is_no_such_configuration_is_refused_in_one_line(text, why, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=why) as raised:
        architecture_of(path)
    assert "\n" not in str(raised.value)
