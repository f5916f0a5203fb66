"""Keys follow from runs: which answer is right, what a slip gives, and when no key can be."""

from dataclasses import replace
from pathlib import Path

import pytest

from generator.checks.content_checks import check
from generator.content.errors import ContentError
from generator.content.quiz import QuizFile
from generator.evidence.evaluation import Evidence
from generator.evidence.value import numeric
from generator.items.kinds import OPEN, key_of, kind_of

SOUND = (Path(__file__).parent / "items" / "sound.yml").read_text(encoding="utf-8")
STEP = "def step(model, rows, optimizer):\n"
WRONG = (
    STEP + "    loss = model(rows)\n    loss.backward()\n    optimizer.step()\n    average(model)\n"
)
RIGHT = STEP + "    loss = model(rows)\n    average(loss).backward()\n    optimizer.step()\n"


def items(*written):
    return QuizFile.model_validate({"items": list(written)}).items


def choice(*options):
    return items({
        "id": "an-item", "stem": "What?",
        "options": [{"text": f"option {'abcd'[i]}", "why": "So.", **option}
                    for i, option in enumerate(options)],
    })[0]  # fmt: skip


def right(claim, verdict="holds"):
    return {"right_if": {"claim": claim, "verdict": verdict}}


@pytest.fixture
def sound(copy):
    """A copy of the frozen book with a sound item of each kind, in a file of their own."""
    stages = copy.load().run("tiny_training.averaged").model_dump(mode="json")["stages"]
    copy.change_run("tiny_training.averaged", stages=[stages[0], {**stages[1], "name": "scale"},
                                                      stages[1]])  # fmt: skip
    (copy.content / "code").mkdir()
    (copy.content / "code" / "wrong.py").write_text(WRONG)
    (copy.content / "code" / "right.py").write_text(RIGHT)
    (copy.content / "topics" / "averaging" / "quiz-sound.yml").write_text(SOUND)
    return copy


def key(sound, name):
    book = sound.load()
    (item,) = (topic.items[name] for topic in book.topics if name in topic.items)
    return key_of(item, Evidence(book))


def test_a_sound_item_of_each_kind_has_no_mistake(sound):
    assert sound.errors() == []


def test_the_key_of_each_kind_is_what_the_runs_give(sound):
    assert numeric(key(sound, "peak-of-whole").value) == 164_000
    assert [numeric(slip) for slip in key(sound, "peak-of-whole").slips] == [80_000, 320_000]
    assert [numeric(end) for end in key(sound, "guess-the-peak").ends] == [8_000, 240_000]
    assert key(sound, "what-holds").right == (0, 1)
    assert key(sound, "by-peak").right == (2, 1, 0)
    assert key(sound, "as-recorded").right == (2, 1, 0)
    assert key(sound, "who-holds-what").right == (0, 1, 2)
    assert key(sound, "which-line").right == (1,)
    assert numeric(key(sound, "fill-in").value) == 84_000


def test_an_order_that_descends_is_the_other_way_round(sound):
    sound.edit(
        "topics/averaging/quiz-sound.yml", "    pieces:", "    descending: true\n    pieces:"
    )
    assert key(sound, "by-peak").right == (0, 1, 2)


HALVES = "tiny_memory.halves.ranks[0].memory.peak_bytes"
WHOLE = "tiny_memory.whole.ranks[0].memory.peak_bytes"
MISTAKES = [
    ("gives: tiny_memory.whole.model.bytes", f"gives: {WHOLE}", f"{WHOLE}\n        misc",
     "which is the answer (160 KiB) within the tolerance"),
    ("gives: 4 * tiny_memory.whole.model.bytes", "gives: tiny_memory.whole.world_size",
     "tiny_memory.whole.world_size", "the slip is in count, the answer in bytes"),
    ("    answer: tiny_memory.whole.ranks[0].memory.peak_bytes",
     "    answer: tiny_memory.whole.status", "tiny_memory.whole.status", "not a number"),
    ("low: tiny_memory.halves.model.bytes / 10", "low: 2 * tiny_memory.halves.model.bytes",
     "2 * tiny_memory.halves.model.bytes", "low is 156 KiB; it must lie below"),
    ("high: 3 * tiny_memory.halves.model.bytes", "high: tiny_memory.whole.world_size * 900",
     "tiny_memory.whole.world_size", "high is a number in the unit of the answer (bytes)"),
    ("low: tiny_memory.halves.model.bytes / 10", "low: 0 * tiny_memory.halves.model.bytes",
     "0 * tiny", "a logarithmic slider starts above nothing"),
    ("refuted_by: whole-needs-more", "refuted_by: broken-claim", "broken-claim",
     "claim 'broken-claim' shows nothing: does_not_hold"),
    ("        misconception: copies-save-memory\n        refuted_by: whole-needs-more",
     "        right_if: {claim: whole-peak}", "what-holds", "every option is right"),
    (f"by: \"{HALVES}\"", f"by: \"{WHOLE}\"", f"\"{WHOLE}\"}}\n      - {{text: the second",
     "have the same value; no order"),
    (f", by: \"{HALVES}\"", "", "id: by-peak",
     "each piece needs recorded: where the item has run:, else by:"),
    ("recorded: scale", "recorded: scaling", "scaling}", "recorded no stage or step 'scaling'"),
    ("right: drift apart, why: Nothing is averaged., claim: replicas-drift",
     "right: drift apart, why: Nothing is averaged.", "{left: replicas", "nothing backs this pair"),
    (f"right: \"{{{{ {HALVES} }}}}\"", "right: \"{{ rank(0) }}\"", "{left: one layer",
     "nothing backs this pair"),
    ("    answer: tiny_memory.whole.ranks[0].memory.peak_bytes", "    answer: rank(0)", "rank(0)",
     "rank(0): these are words; a value is wanted here"),
    (f"right: \"{{{{ {HALVES} }}}}\"", f"right: \"{{{{ {WHOLE} }}}}\"",
     f"\"{{{{ {WHOLE} }}}}\", why: It holds one.", "is '160 KiB' here too, as in pair 1"),
    ("code: loss.backward()", "code: loss.forward()", "loss.forward()",
     "'loss.forward()' does not stand in the listing; did you mean 'loss.backward()'"),
    ("code: optimizer.step(), why: It is as it should be.", "code: average(model), why: It is.",
     "- {code: loss = model", "2 of its lines differ in the corrected program, not one"),
    ("object: step, title: Corrected, run: tiny_training.averaged", "object: step, title: Mended",
     "{path: content/code/right.py", "missing key 'run'"),
    ("object: step, title: The", "object: stride, title: The", "content/code/wrong.py",
     "content/code/wrong.py defines no 'stride'; did you mean 'step'?"),
    (f"cells: [\"{HALVES}\"", f"cells: [\"{HALVES} / {WHOLE}\"",
     "{row: 2", "the missing value is measured; say in tolerance: how near is right"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "at", "said"), MISTAKES)
def test_each_mistake_of_an_item_is_named_at_its_place(sound, old, new, at, said):
    file = "topics/averaging/quiz-sound.yml"
    sound.append("claims/tiny_memory.yml", BROKEN)
    sound.edit(file, old, new)
    before = (sound.content / file).read_text().partition(at)[0].split("\n")
    place = f"content/{file}:{len(before)}:{len(before[-1]) + 1}: "
    errors = [error.replace("\u00a0", " ") for error in sound.errors()]
    assert any(error.startswith(place) and said in error for error in errors), (place, errors)


BROKEN = """\
  - id: broken-claim
    kind: observation
    says: The whole needs less.
    predicted: tiny_memory.halves.ranks|each('memory.peak_bytes')|largest
    relation: below
    observed: tiny_memory.whole.ranks[0].memory.peak_bytes
"""


def test_what_clashes_on_another_machine_only_leaves_the_question_open(sound):
    sound.add_machine("desk", "tiny_memory", "tiny_training")
    assert key(sound, "peak-of-whole").slips[0] is not None
    ranks = sound.load().run("tiny_memory.whole").model_dump(mode="json")["ranks"]
    ranks[0]["memory"]["peak_bytes"] = 84_000
    sound.change_run("tiny_memory.whole", "desk", ranks=ranks)
    assert sound.errors() == []
    assert key(sound, "by-peak") is OPEN
    assert key(sound, "who-holds-what") is OPEN
    ranks[0]["memory"]["peak_bytes"] = 80_000
    sound.change_run("tiny_memory.whole", "desk", ranks=ranks)
    assert key(sound, "peak-of-whole").slips[0] is None
    ranks[0]["memory"]["peak_bytes"] = 7_000
    halves = sound.load().run("tiny_memory.halves").model_dump(mode="json")["ranks"]
    halves[0]["memory"]["peak_bytes"] = 7_000
    sound.change_run("tiny_memory.halves", "desk", ranks=halves)
    assert key(sound, "guess-the-peak").ends is None
    assert numeric(key(sound, "guess-the-peak").value) == 7_000
    assert sound.errors() == []


def test_an_item_has_exactly_one_key(evidence):
    good, bad = right("whole-peak"), right("whole-peak", "does_not_hold")
    assert key_of(choice(bad, good), evidence).right == (1,)
    with pytest.raises(ContentError, match="2 keys: 'option a' and 'option b'"):
        key_of(choice(good, good), evidence)
    with pytest.raises(ContentError, match=r"no key .whole-peak: holds"):
        key_of(choice(bad, bad), evidence)
    with pytest.raises(ValueError, match="name the claim that decides it"):
        choice(good, {})


def test_an_option_that_no_run_decides_leaves_a_question_of_several_open(book, monkeypatch):
    evidence = Evidence(book)
    item = next(one.items["which-hold"] for one in book.topics if "which-hold" in one.items)
    judged = evidence.outcome
    monkeypatch.setattr(
        evidence, "outcome", lambda name: replace(judged(name), verdict="no_evidence")
    )
    assert key_of(item, evidence) is OPEN


def test_the_order_shown_follows_from_the_id_and_never_is_the_right_one(sound):
    book = sound.load()
    evidence = Evidence(book)
    for item in book.topics[1].items.values():
        key = key_of(item, evidence)
        order = kind_of(item, evidence).shown_order()
        if item.kind in ("order", "match"):
            assert order != key.right
            assert sorted(order) == list(range(3))
        if item.kind == "faulty_line":
            assert order == (0, 1, 2)
    assert check(evidence) == []
