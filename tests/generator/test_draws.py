"""Items that draw their numbers: which draws there are, their keys, and the laws of the whole book."""

import pytest

from generator.content.cases import of_expression
from generator.content.draws import MOST_TRIED, NUM_ASKED, Draws, parsed, short_names
from generator.items.draws import mistakes, variants
from generator.items.kinds import digest_of, kind_of
from generator.values.evaluation import Evidence
from tests.generator.conftest import item_of

FILE = "topics/averaging/quiz-drawn.yml"
CHOICE, NUMBER = "draw-the-payload", "draw-the-peak"
MiB = 2**20


def _ring(payload, ranks):
    """What a rank sends, counted turn by turn: a part in each, to sum and to distribute."""
    return sum(payload / ranks for _ in range(2 * (ranks - 1)))


def _idle(units, stages):
    """The idle share of a stage, from a schedule in which each unit moves on at every tick."""
    ticks = max(start + stage for start in range(units) for stage in range(stages)) + 1
    return 1 - units / ticks


# The answers of all items of the book that draw, each worked out without its expressions.
ANSWERS = {
    "ct-hidden-by-backward": lambda gradients, ranks, rate: _ring(gradients, ranks) / rate,
    "ct-by-node-sent": lambda payload, devices, nodes: _ring(payload / devices, nodes),
    "ct-one-bucket-step": lambda **times: sum(times.values()),
    "ct-small-all-reduce": lambda ranks, latency: sum([latency] * 4 * (ranks - 1)),
    "ct-fsdp-accumulated": lambda model, microbatches, ranks: sum([model, model] * microbatches),
    "ddp-adam-peak": lambda model, ranks: model + model + (model + model) + model,
    "ddp-payload-accumulated": lambda gradients, microbatches, samples, ranks: sum(
        gradients for _ in range(microbatches)
    ),
    "ddp-updates": lambda samples, epochs, batch, ranks: (
        epochs * len(range(0, samples, batch * ranks))
    ),
    "ddp-ring-sent": lambda parameters, ranks: _ring(4 * parameters, ranks),
    "lm-adam-state": lambda parameters: 16 * parameters,
    "lm-fsdp-gathered": lambda model, ranks: sum(model / ranks for _ in range(2 * ranks)),
    "lm-waiting-stages": lambda stages: _idle(1, stages),
    "lm-stage-message": lambda batch, width, layers: batch * width * 4,
    "mg-gradient-bytes": lambda parameters, ranks, sequences: 2 * parameters,
    "mg-split-peak": lambda batch, sample, model, ranks: (
        len(range(0, batch, ranks)) * sample + model + model
    ),
    "mg-summed-rate": lambda ranks, rate: sum([rate] * ranks),
    "mg-updates-accumulated": lambda samples, microbatch, microbatches, ranks: len(
        range(0, samples, microbatch * microbatches * ranks)
    ),
    "pp-idle-share": lambda stages, microbatches: _idle(microbatches, stages),
    "pp-sent-by-middle": lambda activation, microbatches, stage: sum(
        [activation, activation] * microbatches
    ),
    "pp-1f1b-stored": lambda stages, place, microbatches: len(range(place, stages)),
    "pp-interleaved-idle": lambda stages, chunks, microbatches: _idle(
        chunks * microbatches, stages
    ),
    "sd-fsdp-stored": lambda model, ranks: sum([model / ranks] * 4),
    "sd-zero1-stored": lambda model, ranks: model + model + model + 2 * (model / ranks),
    "sd-sent-in-rings": lambda layer, layers, ranks: sum(
        layer / ranks * (ranks - 1) * (3 if place + 1 < layers else 2) for place in range(layers)
    ),
    "sd-gather-calls": lambda layers: len([*range(layers), *range(layers)]),
}


@pytest.fixture(scope="module")
def drawn(real):
    items = (item for topic in real.topics for item in topic.items.values())
    return {one.id: one for one in items if getattr(one, "draws", None)}


def test_every_topic_has_four_items_that_draw_and_each_has_an_answer_here(real, drawn):
    num = {topic.id: len(drawn.keys() & topic.items.keys()) for topic in real.topics}
    assert min(num.values()) >= 4, num
    assert drawn.keys() == ANSWERS.keys()


@pytest.mark.parametrize("name", ANSWERS)
def test_on_all_draws_the_key_is_the_answer_worked_out_by_hand(real, drawn, name):
    item, evidence = drawn[name], Evidence(real)
    (_, key), *_ = item.as_written.formulas()
    draws = item.draws.tried(name)
    for draw in draws:
        found = evidence.evaluate(of_expression(key, short_names(draw))).result
        settings = {setting: parsed(value)[0] for setting, value in draw.items()}
        assert found.number == pytest.approx(ANSWERS[name](**settings), rel=1e-12), draw
    asked = [kind_of(one, evidence) for one in variants(item)]
    assert 1 < len(asked) <= min(NUM_ASKED, len(draws))
    assert len({one.seen for one in asked}) == len(asked)
    assert len({len(one.key.right) for one in asked}) == 1
    assert list(mistakes(item, evidence)) == []


def test_a_drawn_item_asks_its_draws_in_an_order_that_its_id_alone_decides(book, copy, evidence):
    item = item_of(book, NUMBER)
    keys = [kind_of(one, evidence).key.value.number for one in variants(item)]
    assert sorted(keys) == [6 * MiB, 10 * MiB, 16 * MiB]
    copy.edit(FILE, "[3 MiB, 5 MiB, 8 MiB]", "[8 MiB, 3 MiB, 5 MiB]")
    assert {one["model"] for one in item_of(copy.load(), NUMBER).draws.tried(NUMBER)} == {
        "3 MiB",
        "5 MiB",
        "8 MiB",
    }
    choice = [kind_of(one, evidence) for one in variants(item_of(book, CHOICE))]
    assert {one.key.right for one in choice} == {(1,)}
    assert len({one.seen for one in choice}) == NUM_ASKED


def test_a_kept_answer_belongs_to_the_numbers_it_was_given_to(copy):
    """Of a typed one, other numbers void it; a chosen position means the same belief still."""

    def digests():
        book = copy.load()
        return [digest_of(item_of(book, name), Evidence(book)) for name in (CHOICE, NUMBER)]

    before = digests()
    copy.edit(FILE, "[1000, 5000, 20000]", "[2000, 6000, 30000]")
    copy.edit(FILE, "[3 MiB, 5 MiB, 8 MiB]", "[4 MiB, 6 MiB, 9 MiB]")
    assert [one == other for one, other in zip(before, digests(), strict=True)] == [True, False]


def test_of_many_draws_five_hundred_different_ones_are_tried():
    sets = {name: list(range(1, 31)) for name in ("one", "two", "three")}
    draws = Draws(settings=sets, law="a-law", measured_with={})
    tried = draws.tried("an-id")
    assert len({tuple(one.values()) for one in tried}) == len(tried) == MOST_TRIED
    assert tried == draws.tried("an-id") != draws.tried("another-id")
    assert all({one[name] for one in tried} == {*range(1, 31)} for name in sets)
