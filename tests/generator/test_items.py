"""Items: keys that follow from runs, cases, drawn numbers, and their digests in pages and links."""

import json
import re
from dataclasses import replace
from math import floor, log2, prod

import pytest

from proofbook.generator.content.cases import bind_expression
from proofbook.generator.content.draws import MOST_TRIED, NUM_ASKED, Draws, parsed, short_names
from proofbook.generator.kinds.questions.item_checks import answerable_cases
from proofbook.generator.kinds.questions.kinds import digest_of, kind_of
from proofbook.generator.kinds.questions.kinds.base import OPEN
from proofbook.generator.kinds.questions.kinds.typed import unit_of
from proofbook.generator.pages.press import Press
from proofbook.generator.values import units
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.units import Form
from proofbook.generator.values.value import Value, numeric
from tests.generator.conftest import render

ITEMS = "topics/asking/quiz.yml"
AS_RECORDED = """\
  - id: as-recorded
    kind: order
    stem: What comes after what?
    run: tiny_training.averaged
    pieces:
      - {text: training, why: It needs rows., recorded: train}
      - {text: scaling, why: It needs rows., recorded: scale}
      - {text: loading, why: It comes first., recorded: load}
"""


def key(book, name):
    return kind(book, name).key


def kind(book, name):
    return kind_of(book.items[name], Evidence(book))


def test_the_key_of_each_kind_is_what_the_runs_give(book):
    assert numeric(key(book, "what-peak").value) == 164_000
    assert [numeric(slip) for slip in key(book, "what-peak").slips] == [80_000]
    assert [numeric(end) for end in kind(book, "how-slow").ends] == pytest.approx([12e-5, 12e-3])
    assert key(book, "how-many-bytes").right == (0,)
    assert key(book, "which-hold").right == (0, 1)
    assert key(book, "who-needs-most").right == (2, 1, 0)
    assert key(book, "what-belongs").right == (0, 1, 2)
    assert key(book, "where-is-the-fault").right == (2,)
    assert numeric(key(book, "what-accuracy").value) == 0.28


def test_an_order_is_the_recorded_one_or_descends(copy):
    copy.append(ITEMS, AS_RECORDED)
    load, train = copy.recorded("tiny_training.averaged")["stages"]
    copy.change_run("tiny_training.averaged", stages=[load, {**train, "name": "scale"}, train])
    copy.edit(ITEMS, "    ends: [needs", "    descending: true\n    ends: [needs")
    assert key(copy.load(), "as-recorded").right == (2, 1, 0)
    assert key(copy.load(), "who-needs-most").right == (0, 1, 2)
    copy.edit(ITEMS, "recorded: train", "recorded: training")
    (error,) = copy.errors()
    assert "recorded no stage or step 'training'; did you mean 'train'?" in error
    copy.edit(ITEMS, "recorded: training", "recorded: load")
    (error,) = copy.errors()
    assert error.endswith("another piece is 'load' already; no order")


def test_what_clashes_on_another_machine_only_leaves_the_question_open(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")

    def peaks_at(size):
        ranks = copy.recorded("tiny_memory.whole", "desk")["ranks"]
        ranks[0]["memory"]["peak_bytes"] = size
        copy.change_run("tiny_memory.whole", "desk", ranks=ranks)

    peaks_at(84_000)  # as the first part does
    settings = copy.recorded("tiny_training.averaged", "desk")["settings"]
    copy.change_run("tiny_training.averaged", "desk", settings={**settings, "num_epochs": 2})
    assert copy.errors() == []
    assert key(copy.load(), "who-needs-most") is OPEN
    assert key(copy.load(), "what-belongs") is OPEN
    peaks_at(80_000)  # as the slip says
    timing = copy.recorded("tiny_training.averaged", "desk")["timing"]
    timing["step"]["samples"] = [0.1] * 5  # beyond the slider
    copy.change_run("tiny_training.averaged", "desk", timing=timing)
    assert key(copy.load(), "what-peak").slips == (None,)
    assert kind(copy.load(), "how-slow").ends is None
    assert numeric(key(copy.load(), "how-slow").value) == 0.1
    assert copy.errors() == []


def test_an_option_that_no_run_decides_leaves_a_question_of_several_open(evidence, monkeypatch):
    judged = evidence.judged
    undecided = lambda name: replace(judged(name), verdict="no_evidence")  # noqa: E731
    monkeypatch.setattr(evidence, "judged", undecided)
    assert kind_of(evidence.book.items["which-hold"], evidence).key is OPEN


def test_the_order_shown_is_never_the_right_one(book):
    evidence = Evidence(book)
    for item in book.items.values():
        order = kind_of(item, evidence).page_order()
        if item.kind in ("order", "match"):
            assert order != kind_of(item, evidence).key.right
            assert sorted(order) == list(range(3))
        if item.kind == "faulty_line":
            assert order == (0, 1, 2)


def test_what_the_reference_machine_decides_is_checked_on_another_machine_too(copy):
    peak = "tiny_memory.{}.ranks[0].memory.peak_bytes"
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.edit(ITEMS, f"by: {peak.format('halves')}", f"by: {peak.format('whole')}")
    copy.edit(ITEMS, "gives: tiny_memory.whole.model.bytes", f"gives: {peak.format('whole')}")
    told = " ".join(copy.errors())
    assert "have the same value; no order" in told
    assert "a reader's mistake could not be told" in told


# --- items over several cases (`for:`): each reads its own runs and has its own key


TRY = "topics/averaging/quiz-try.yml"
FOR = "for: [tiny_memory.halves, tiny_memory.whole]"
ITEM, RECALL = "say-the-peak", "topics/averaging/recall.md"


def test_a_case_reads_its_own_run_in_all_parts_of_the_item(evidence):
    item = evidence.book.items[ITEM]
    ((number, other),) = answerable_cases(item, evidence)
    assert number == 1
    said = "A model of 78.1 KiB trains on {} ranks. Where does the first one peak?"
    assert [evidence.plain(one.stem) for one in (item, other)] == [said.format(2), said.format(1)]
    peaks = [evidence.book.run(f"tiny_memory.{run}") for run in ("halves", "whole")]
    keys = [kind_of(one, evidence).key.value.number for one in (item, other)]
    assert keys == [run.ranks[0].memory.peak_bytes for run in peaks]
    assert keys[0] != keys[1]


def test_recall_alone_asks_other_cases_and_keeps_answers_under_the_item(book):
    press = Press()
    pages = {path: content.decode() for path, content in press.printed(book).items()}
    (path,) = re.findall(r'data-variants="../../([^"]+)"', pages[RECALL])
    apart = press.assets[path].decode()
    html = json.loads(apart.removeprefix("proofbook.variants(").removesuffix(");\n"))
    (own,) = re.findall(r'<form [^>]*data-item="say-the-peak"[^>]*>', pages[RECALL])
    (other,) = re.findall(r'<form [^>]*data-item="say-the-peak"[^>]*>', html)
    digests = [re.search(r'data-digest="(\w+)"', form)[1] for form in (own, other)]
    assert digests[0] == digests[1]
    assert 'data-variant="1"' in other
    assert 'id="item-say-the-peak-variant-1"' in html
    assert 'data-variant="' not in "".join(pages.values())


def test_an_item_over_several_cases_has_the_digest_of_its_first(copy):
    before = digest_of(copy.load().items[ITEM], Evidence(copy.load()))
    copy.edit(TRY, FOR, "revision: 1")
    written = copy.content / TRY
    written.write_text(written.read_text().replace("run.", "tiny_memory.halves."))
    evidence = Evidence(copy.load())
    assert digest_of(evidence.book.items[ITEM], evidence) == before


def test_a_case_binds_runs_numbers_claims_and_words(copy):
    cases = (
        "for: [{it: tiny_memory.halves, rank: 0, law: halves-complete, called: half a model}, "
        "{it: tiny_memory.whole, rank: 0, law: whole-completes, "
        'called: "a model of {{ it.model.bytes }}"}]'
    )
    copy.edit(TRY, FOR, cases)
    written = copy.content / TRY
    text = written.read_text().replace("run.", "it.").replace("ranks[0]", "ranks[rank]")
    text = text.replace("A model of {{ it.model.bytes }} trains", "Here {{ called }} trains")
    written.write_text(text.replace("some activations", "{{ holds(law) }} some activations"))
    evidence = Evidence(copy.load())
    item = evidence.book.items[ITEM]
    assert item.stem.startswith("Here half a model trains on {{ tiny_memory.halves.world_size }}")
    assert "holds('halves-complete')" in item.why
    (other,) = item.others
    assert other.stem.startswith("Here a model of {{ tiny_memory.whole.model.bytes }} trains")
    assert other.answer == "tiny_memory.whole.ranks[0].memory.peak_bytes"


# --- items that draw their numbers


FILE = "topics/averaging/quiz-drawn.yml"
CHOICE, NUMBER = "draw-the-copy", "draw-the-peak"


def _ring(payload, ranks):
    """What a rank sends, turn by turn: a part in each, to sum and then to distribute."""
    return sum(payload / ranks for _ in range(2 * (ranks - 1)))


def _idle(units, stages):
    """The idle share of a stage where every unit moves on by a stage at each tick."""
    ticks = max(start + stage for start in range(units) for stage in range(stages)) + 1
    return 1 - units / ticks


def _rounded(value, numbers):
    """The nearest number, ties to even, of a format with so many from 1 to 2."""
    spacing = max(1, 2 ** floor(log2(value)) // numbers)
    return round(value / spacing) * spacing


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
    "worked-idle": lambda stages, microbatches: _idle(microbatches, stages),
    "sd-fsdp-stored": lambda model, ranks: sum([model / ranks] * 4),
    "sd-zero1-stored": lambda model, ranks: model + model + model + 2 * (model / ranks),
    "sd-sent-in-rings": lambda layer, layers, ranks: sum(
        layer / ranks * (ranks - 1) * (3 if at + 1 < layers else 2) for at in range(layers)),
    "pr-draw-stops": lambda numbers: next(
        total for total in range(1, 4 * numbers) if _rounded(total + 1, numbers) == total),
    "pr-draw-positions": lambda positions: next(
        apart for apart in range(1, positions)
        if _rounded(positions - apart, 128) == positions - apart),
    "pr-draw-sent": lambda parameters, ranks: sum([2 * parameters / ranks] * (ranks - 1)),
    "pr-draw-both-ways": lambda numbers, block: 2 * numbers + 2 * (numbers / block),
    "pr-draw-owned": lambda momenta, ranks: sum(2 * [momenta / ranks / ranks] * (ranks - 1)),
    "sq-draw-logits": lambda tokens, ranks, words: sum([words * 4] * (tokens // ranks)),
    "sq-draw-scores": lambda documents, length: documents * sum(range(1, length + 1)),
    "tl-learn-bytes": lambda activation, blocks, _: sum([activation] * (2 + 2) * blocks),
    "tl-trace-passed": lambda ranks, activation: sum([activation / ranks] * 4),
    "tl-draw-sent": lambda ranks, activation: sum([activation / ranks] * (ranks - 1) * 2 * 4),
    "tl-draw-stored": lambda ranks, split, whole: sum([split / ranks, whole]),
    "lr-deep-copies": lambda parameters, ranks, node: sum([3 * parameters * 4 / ranks] * node),
    "lr-deep-background": lambda interval, stall, writing, restart, between: (
        interval / (interval + stall + interval / between * (interval / 2 + writing + restart))
    ),
    "lr-learn-lost": lambda death, saved, _: len(range(saved, death)),
    "lr-trace-shards": lambda parameters, ranks: sum([4 * parameters / ranks] * 3),
    "lr-cost-bytes": lambda parameters: sum([4 * parameters] * 3),
    "lr-cost-goodput": lambda interval, stall, restart, between: (
        interval / (interval + stall + interval / between * (interval / 2 + stall + restart))
    ),
    "ml-learn-bytes": lambda tokens, width, choices: sum([tokens * choices * width * 4] * 4),
    "ml-trace-busiest": lambda tokens, skewed, ranks: sum(
        2 * skewed + 2 * (tokens - skewed) / ranks for _ in range(ranks)),
    "ml-cost-divisor": lambda replicas, shards, _: len([*range(shards)] * replicas),
    "ml-cost-gathered": lambda experts, width, hidden: 3 * sum([2 * width * hidden * 4] * experts),
    "ml-cost-sums": lambda layers, stages, activation: sum([activation] * (4 * layers // stages)),
    "lr-deep-fewer": lambda steps, batch, before, after: sum(
        len(range(rank * batch, (rank + 1) * batch)) for rank in range(after, before)) * steps,
    "lr-deep-rare": lambda steps, width, every: 4 * width**2 * len(range(every, steps + 1, every)),
    "sq-deep-labels": lambda ranks: sum(
        (last + 1 != first) + (end != 2 * ranks - 1)  # in the middle of a shard, and at its end
        for last, first, end in ((rank, 2 * ranks - 1 - rank, 2 * ranks - 1 - rank)
                                 for rank in range(ranks))),
    "sq-draw-counted": lambda data, context: data / sum([context] * data),
    "sq-deep-latents": lambda tokens, latent, rotated, _: sum([4 * latent + 4 * rotated] * tokens),
    "sq-trace-calls": lambda ranks: sum([*[1] * (ranks - 1), *[1] * (ranks - 1), *[1] * ranks]),
    "sq-deep-waits": lambda ranks: sum([0.5, *[1] * (ranks - 1)]) / (ranks**2 / 2 / ranks),
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


# --- on pages and in links: the unit asked in, and digests, by which answers count


CHALLENGE = "topics/asking/challenge.md"
MIB = 2**20
MARK = re.compile(r"^!?[a-z0-9-]+(:[0-9a-f]{4}){1,2}$")  # as proofbook.js reads them


@pytest.mark.parametrize(
    ("number", "unit", "form", "label", "scale"),
    [
        (434 * MIB, units.BYTES, Form(), "MiB", MIB),
        (209715200, units.BYTES, Form(way="exact"), "bytes", 1),
        (3e6, units.Unit(num_bytes=1, num_seconds=-1), Form(), "MB/s", 1e6),
        (0.0022, units.SECONDS, Form(), "ms", 1e-3),
        (0.28, units.SHARE, Form(), "%", 0.01),
        (55_000_000, units.COUNT, Form(), "million", 1e6),
        (1.5, units.PLAIN, Form(way="times"), "times", 1),
        (2e-7, units.LOSS, Form(), "× 10⁻⁷", 1e-7),
        (-3.5, units.PLAIN, Form(), "", 1),
        ("50\u00a0×\u00a020", units.TEXT, Form(), "", 1),
    ],
)
def test_a_number_is_asked_in_the_unit_that_it_prints_in(number, unit, form, label, scale):
    asked = unit_of(Value(number, unit, "measured", "x", form=form))
    assert asked.label == label
    assert asked.scale == pytest.approx(scale, rel=1e-12)


def _forms(text):
    return dict(re.findall(r'data-item="([^"]+)" data-digest="([^"]+)"', text))


def test_a_step_of_a_problem_is_closed_until_the_one_before_is_answered(copy):
    copy.edit(
        "topics/asking/challenge.yml",
        "    item: which-hold",
        "    steps: [how-slow, what-peak]\n    item: which-hold",
    )
    problem = render(copy.load())[CHALLENGE].partition("Choose several")[2].partition("Work out")[0]
    places = re.findall(r'data-after="([\w-]+)"|data-item="([\w-]+)"', problem)
    assert [after or f"asks {item}" for after, item in places] == [
        "asks how-slow", "how-slow", "asks what-peak", "what-peak", "asks which-hold", "which-hold",
    ]  # fmt: skip


def test_a_rerun_with_other_times_and_losses_voids_no_answer(copy, rendered):
    with copy.rewritten("tiny_training") as trace:
        trace["recorded_at"] = "2027-01-01T00:00:00Z"
        epochs = [epoch for run in trace["runs"].values() for epoch in run["epochs"]]
        for one in (part for epoch in epochs for part in (epoch, *epoch["ranks"])):
            one["loss"] = one["loss"] * 1.01 if one["loss"] else one["loss"]
    after = render(copy.load())[CHALLENGE]
    assert after != rendered[CHALLENGE]
    assert _forms(after) == _forms(rendered[CHALLENGE])
    assert len(_forms(after)) == 10


def _reordered(item):
    first, second, *rest = item.options
    return {"options": [second, first, *rest]}


@pytest.mark.parametrize(
    ("name", "change", "is_another"),
    [
        ("what-peak", lambda _: {"stem": "What is it?", "slips": []}, False),
        ("what-peak", lambda _: {"revision": 2}, True),
        ("what-peak", lambda _: {"answer": "tiny_memory.halves.model.bytes"}, True),
        ("how-many-bytes", _reordered, True),
        ("how-many-bytes", lambda item: {"options": [*item.options, item.options[1]]}, True),
    ],
)
def test_another_key_or_revision_is_another_question_and_another_text_is_not(
    evidence, name, change, is_another
):
    item = evidence.book.items[name]
    changed = item.model_copy(update=change(item))
    assert (digest_of(changed, evidence) != digest_of(item, evidence)) is is_another


def _links(html):
    return dict(re.findall(r'<a href="(?:[^"]*/)?(\w+)\.html" [^>]*data-items="([^"]*)"', html))


def test_a_link_carries_the_items_of_the_page_it_leads_to_with_the_digests_they_have_there(
    rendered, book
):
    seen = 0
    for topic in book.topics:
        links = _links(rendered[f"topics/{topic.id}/index.md"])
        assert links.keys() == {*topic.lessons}
        for mode, marked in links.items():
            own = re.compile(rf"topics/{topic.id}/{mode}[.-]")
            page = "".join(text for path, text in rendered.items() if own.match(path))
            forms = re.findall(r'data-item="([^"]+)"[^>]* data-digest="([^"]+)"', page)
            assert all(MARK.match(one) for one in marked.split())
            again = topic.items_by_mode.get("recall", ())
            assert {one for one in marked.split() if one[0] != "!"} == {
                one for one in marked.split() if one.strip("!").split(":")[0] in again
            }
            current = {":".join(one.strip("!").split(":")[:2]) for one in marked.split()}
            assert current == {f"{name}:{digest[:4]}" for name, digest in forms}
            seen += len(forms)
    assert seen
