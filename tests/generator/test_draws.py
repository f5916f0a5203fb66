"""Items that draw their numbers: their draws, their keys, and the answers of the whole book."""

from math import prod

import pytest

from proofbook.generator.content.cases import bind_expression
from proofbook.generator.content.draws import MOST_TRIED, NUM_ASKED, Draws, parsed, short_names
from proofbook.generator.items.kinds import digest_of, kind_of
from proofbook.generator.values.evaluation import Evidence

FILE = "topics/averaging/quiz-drawn.yml"
CHOICE, NUMBER = "draw-the-copy", "draw-the-peak"


def _ring(payload, ranks):
    """What a rank sends, turn by turn: a part in each, to sum and then to distribute."""
    return sum(payload / ranks for _ in range(2 * (ranks - 1)))


def _idle(units, stages):
    """The idle share of a stage where every unit moves on by a stage at each tick."""
    ticks = max(start + stage for start in range(units) for stage in range(stages)) + 1
    return 1 - units / ticks


# The answers of all items of the book that draw, each worked out without its expressions: by
# settings in the order of their sets.
# fmt: off
ANSWERS = {
    "ct-hidden-by-backward": lambda gradients, ranks, rate: _ring(gradients, ranks) / rate,
    "ct-by-node-sent": lambda payload, devices, nodes: _ring(payload / devices, nodes),
    "ct-one-bucket-step": lambda *times: sum(times),
    "ct-small-all-reduce": lambda ranks, latency: sum([latency] * 4 * (ranks - 1)),
    "ct-fsdp-accumulated": lambda model, microbatches, _: sum([model, model] * microbatches),
    "ddp-adam-peak": lambda model, _: model + model + (model + model) + model,
    "ddp-payload-accumulated": lambda gradients, microbatches, *_: sum([gradients] * microbatches),
    "ddp-updates": lambda samples, epochs, *batch: epochs * len(range(0, samples, prod(batch))),
    "ddp-ring-sent": lambda parameters, ranks: _ring(4 * parameters, ranks),
    "lm-adam-state": lambda parameters: 16 * parameters,
    "lm-fsdp-gathered": lambda model, ranks: sum(model / ranks for _ in range(2 * ranks)),
    "lm-waiting-stages": lambda stages: _idle(1, stages),
    "lm-stage-message": lambda batch, width, _: batch * width * 4,
    "mg-gradient-bytes": lambda parameters, *_: 2 * parameters,
    "mg-split-peak": lambda batch, sample, model, ranks:
        len(range(0, batch, ranks)) * sample + model + model,
    "mg-summed-rate": lambda ranks, rate: sum([rate] * ranks),
    "mg-updates-accumulated": lambda samples, *batch: len(range(0, samples, prod(batch))),
    "pp-idle-share": lambda stages, microbatches: _idle(microbatches, stages),
    "pp-sent-by-middle": lambda activation, microbatches, _: sum([2 * activation] * microbatches),
    "pp-1f1b-stored": lambda stages, place, _: len(range(place, stages)),
    "pp-interleaved-idle": lambda stages, *units: _idle(prod(units), stages),
    "sd-fsdp-stored": lambda model, ranks: sum([model / ranks] * 4),
    "sd-zero1-stored": lambda model, ranks: model + model + model + 2 * (model / ranks),
    "sd-sent-in-rings": lambda layer, layers, ranks: sum(
        layer / ranks * (ranks - 1) * (3 if at + 1 < layers else 2) for at in range(layers)),
    "sd-gather-calls": lambda layers: len([*range(layers), *range(layers)]),
}
# fmt: on


def test_on_all_draws_of_the_book_the_key_is_the_answer_worked_out_by_hand(real):
    evidence, named = Evidence(real), set()
    for topic in real.topics:
        drawn = [one for one in topic.items.values() if getattr(one, "draws", None)]
        assert len(drawn) >= 4, topic.id
        named.update(one.id for one in drawn)
        for item in drawn:
            (_, key), *_ = item.as_written.answer_expressions()
            for draw in item.draws.shuffled(item.id):
                found = evidence.evaluate(bind_expression(key, short_names(draw))).result.number
                answer = ANSWERS[item.id](*(parsed(one)[0] for one in draw.values()))
                assert found == pytest.approx(answer, rel=1e-12), (item.id, draw)
            asked = {kind_of(one, evidence).visible_texts for one in (item, *item.others)}
            assert len(asked) == min(NUM_ASKED, prod(map(len, item.draws.settings.values())))
    assert named == ANSWERS.keys()


def test_a_kept_answer_belongs_to_the_numbers_that_it_was_given_to(copy, evidence):
    """Other numbers void one that was typed; a chosen position means the same belief still."""

    def digests():
        book = copy.load()
        return [digest_of(book.items[name], Evidence(book)) for name in (CHOICE, NUMBER)]

    before = digests()
    copy.edit(FILE, "[1000, 5000, 20000]", "[2000, 6000, 30000]")
    copy.edit(FILE, "[3 MiB, 5 MiB, 8 MiB]", "[4 MiB, 6 MiB, 9 MiB]")
    assert [one == other for one, other in zip(before, digests(), strict=True)] == [True, False]


def test_of_many_draws_five_hundred_different_ones_are_tried_by_the_id():
    sets = {name: list(range(1, 28)) for name in ("one", "two", "three")}
    draws = Draws(settings=sets, law="a-law", measured_with={})
    tried = draws.shuffled("an-id")
    assert len({tuple(one.values()) for one in tried}) == len(tried) == MOST_TRIED
    assert tried == draws.shuffled("an-id") != draws.shuffled("another-id")
    assert all({one[name] for one in tried} == {*range(1, 28)} for name in sets)
