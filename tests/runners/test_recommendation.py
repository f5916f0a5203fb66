"""One recommendation: what is searched, how it is justified, and what would turn it."""

import json
from types import SimpleNamespace

import pytest

from runners.planner.answers import recommendation
from runners.planner.answers.answer import GIB, Answer, layouts
from runners.planner.answers.architecture import model_presets
from runners.planner.answers.configuration import architecture_of
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.question import Model, PlanError, Training
from runners.planner.answers.recommendation import recommendation_lines, search, strategies
from runners.planner.simulated.processes import answers
from tests.runners.questions import LLAMA, asked, changed

SMALL = changed(LLAMA, hidden_size=256, ffn_size=1024, vocabulary=1000, context_length=128)
TRAINING = Training(sequence=128, global_batch=8)
CLUSTER = Cluster(2, 2, 1e15, within=1e15, between=1e15)


@pytest.fixture(scope="module")
def found():
    """All layouts of a small model on two nodes of two devices, with ample memory."""
    model = Model(name="small", architecture=SMALL)
    simulated, is_whole = search(model, TRAINING, CLUSTER, 80 * GIB, answers, 1e9)
    assert is_whole
    return simulated


@pytest.mark.builds
def test_the_recommendation_is_dominated_by_no_layout_that_fits(found):
    best, *others = layouts(found, CLUSTER, 80 * GIB)
    assert len(others) > 10
    assert not any(one.bounds.at_least < 0.98 * best.bounds.at_least for one in others)
    lines = recommendation_lines(found, CLUSTER, 80 * GIB, is_whole=True)
    assert lines[0] == f"recommended: {best.name}"
    assert lines[2].startswith("runner-up:")
    assert lines[-1].endswith("all that the search knows")


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
def test_where_nothing_fits_a_line_says_what_would(found):
    with pytest.raises(PlanError, match=r"no layout fits 1 GiB; the least needs \d"):
        recommendation_lines(found, CLUSTER, GIB, is_whole=True)
    with pytest.raises(PlanError, match="the time of the search was over; see --seconds"):
        recommendation_lines(found, CLUSTER, GIB, is_whole=False)


def test_where_no_state_fits_the_recommendation_says_just_that():
    unfit = Answer(question=asked("ddp"), seconds=0, reason="the optimizer alone needs more")
    with pytest.raises(PlanError, match=r"^the optimizer alone needs more$"):
        recommendation_lines([unfit], CLUSTER, GIB, is_whole=True)


def test_a_search_begins_no_round_that_would_end_too_late(monkeypatch):
    """Rounds of ten seconds: after three of them, a fourth would end after 35 seconds."""
    seconds = iter(range(0, 100, 10))
    monkeypatch.setattr(recommendation, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(recommendation, "num_cores", lambda: 2)
    model, rounds = Model(name="small", architecture=SMALL), []

    def simulate(some):
        rounds.append(some)
        return [Answer(question=one, seconds=10) for one in some]

    assert not search(model, TRAINING, CLUSTER, 80 * GIB, simulate, 35)[1]
    assert [len(some) for some in rounds] == [2, 2, 2]


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
        (json.dumps(FILE | {"architectures": ["LlamaForSequenceClassification"]}), "another head"),
    ],
)
def test_a_file_that_is_no_such_configuration_is_refused_in_one_line(text, why, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=why) as raised:
        architecture_of(path)
    assert "\n" not in str(raised.value)
