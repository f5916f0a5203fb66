"""Items as pages print them: the unit asked in, what is near enough, digests, keys kept apart."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from generator.content.claim import Tolerance
from generator.evidence.folio import interface_words
from generator.evidence.units import BYTES, COUNT, LOSS, PLAIN, SECONDS, SHARE, TEXT, Form, Unit
from generator.evidence.value import Value
from generator.items.typed_number import reach, unit_of
from generator.pages import rendering
from generator.pages.views.answers import claim_behind
from generator.pages.views.question import digest_of

CHALLENGE = "topics/asking/challenge.md"
MIB = 2**20


@pytest.fixture(scope="module")
def rendered(book):
    return rendering.render(book)


@pytest.mark.parametrize(
    ("number", "unit", "form", "label", "scale"),
    [
        (434 * MIB, BYTES, Form(), "MiB", MIB),
        (144, BYTES, Form(), "B", 1),
        (209715200, BYTES, Form(way="exact"), "bytes", 1),
        (3 * MIB, Unit(num_bytes=1, num_seconds=-1), Form(), "MiB/s", MIB),
        (40, Unit(num_seconds=-1), Form(), "per second", 1),
        (0.0022, SECONDS, Form(), "ms", 1e-3),
        (4e-7, SECONDS, Form(), "µs", 1e-6),
        (0.28, SHARE, Form(), "%", 0.01),
        (55_000_000, COUNT, Form(), "million", 1e6),
        (10_000, COUNT, Form(), "", 1),
        (1.5, PLAIN, Form(way="times"), "times", 1),
        (2e-7, LOSS, Form(), "× 10⁻⁷", 1e-7),
        (-3.5, PLAIN, Form(), "", 1),
        ("50\u00a0×\u00a020", TEXT, Form(), "", 1),
    ],
)
def test_a_number_is_asked_in_the_unit_that_it_prints_in(number, unit, form, label, scale):
    asked = unit_of(Value(number, unit, "measured", "x", form=form))
    assert asked.label == label
    assert asked.scale == pytest.approx(scale, rel=1e-12)


def _measured(number, unit=BYTES):
    return Value(number, unit, "measured", "x")


def test_what_a_page_prints_is_always_near_enough():
    printed = reach(_measured(164_000), Tolerance(relative=0))  # prints as 160 KiB
    assert printed.number == 164_000
    assert printed.within == pytest.approx(164_000 - 160 * 1024)
    assert reach(_measured(40, COUNT), None).within == 0
    assert reach(_measured(1000, COUNT), Tolerance(relative=0.1)).within == pytest.approx(100)
    assert reach(_measured(0.28, SHARE), Tolerance(absolute=0.01)).within == pytest.approx(0.01)
    shape = reach(_measured("50\u00a0×\u00a020", TEXT), None)
    assert (shape.number, shape.words) == (None, "50\u00a0×\u00a020")


def _forms(text):
    return dict(re.findall(r'data-item="([^"]+)" data-digest="([^"]+)"', text))


def test_a_rerun_with_other_times_and_losses_voids_no_answer(copy, rendered):
    path = copy.content / "traces" / "reference-frozen" / "tiny_training.json"
    trace = json.loads(path.read_text())
    trace["recorded_at"] = "2027-01-01T00:00:00Z"
    for run in trace["runs"].values():
        for epoch in run["epochs"]:
            epoch["loss"] = epoch["loss"] * 1.01 if epoch["loss"] else epoch["loss"]
    path.write_text(json.dumps(trace))
    after = rendering.render(copy.load())[CHALLENGE]
    assert after != rendered[CHALLENGE]
    assert _forms(after) == _forms(rendered[CHALLENGE])
    assert len(_forms(after)) == 10


@pytest.mark.parametrize(
    ("verdict", "said"), [("holds", ""), ("not_distinguishable", "not distinguishable")]
)
def test_evidence_that_does_not_hold_says_so_beside_its_sentence(book, verdict, said):
    name = "averaging-is-slower"
    outcome = SimpleNamespace(runs=("tiny_training.single",), verdict=verdict)
    folio = SimpleNamespace(
        book=book, outcomes={name: outcome}, runs=set(), ui=interface_words(), line=str
    )
    assert claim_behind(name, folio).verdict == said


@pytest.mark.parametrize(
    ("change", "is_seen"),
    [
        ({"stem": "What is it?"}, True),
        ({"why": "Another reason."}, True),
        ({"hints": ["Another."]}, True),
        ({"answer": "tiny_memory.halves.ranks[0].memory.peak_bytes"}, True),
        ({"accepts": {"absolutes": "It is so."}}, False),
        ({"misconceptions": ["loss-decides"]}, False),
    ],
)
def test_a_digest_follows_what_readers_see(evidence, change, is_seen):
    item = next(t for t in evidence.book.topics if t.id == "asking").items["what-peak"]
    changed = item.model_copy(update=change)
    assert (digest_of(changed, evidence) != digest_of(item, evidence)) is is_seen


def test_the_code_of_a_listing_is_part_of_what_readers_see(copy, rendered):
    file = copy.content / "topics" / "asking" / "code" / "mean_wrong.py"
    file.write_text(file.read_text().replace("The gradient", "A gradient"))
    before, after = _forms(rendered[CHALLENGE]), _forms(rendering.render(copy.load())[CHALLENGE])
    assert {n for n in before if before[n] != after[n]} == {"where-is-the-fault"}


def test_a_slip_is_printed_as_a_value_and_says_what_it_is(rendered):
    key = rendered[CHALLENGE].split('id="item-how-many-bytes"')[1].split("</ul>")[0]
    slip = re.search(r"<button[^>]*pb-computed[^>]*>288\u00a0B</button>.*?</li>", key, re.S)
    assert slip
    assert "That is what all ranks send together." in slip[0]
    assert 'href="../../evidence.html#claim-replicas-drift"' in slip[0]


def test_the_key_never_stands_in_the_form(rendered):
    for form in re.findall(r'<form class="pb-item".*?</form>', rendered[CHALLENGE], re.S):
        assert "data-verdict" not in form
        assert "data-number" not in form
        assert "pb-why" not in form
        asked = form.split("</legend>")[1]
        assert "popovertarget" not in asked
