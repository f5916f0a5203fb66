"""Several machines in one book: what each says of the same claims, and what no machine can move."""

import json
import re

import pytest

from generator.evidence.claim_topics import lessons_by_claim
from generator.evidence.evaluation import Evidence
from generator.evidence.other_machines import SHARED_CORES, other_outcomes
from generator.evidence.verdicts import UNDECIDED, judge
from generator.pages import rendering
from generator.pages.press import Press
from generator.pages.views import claim_index
from runners.traces.measured import SampledSeconds


def there(copy, name="desk"):
    book = copy.load("reference-frozen")
    return other_outcomes(book, judge(book, Evidence(book)))[name].outcomes


@pytest.fixture
def desk(copy):
    """The frozen book, shown as the reference machine measured it, with a second machine."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    (copy.content / "traces" / "this-machine").unlink()
    return copy


def scaled_times(document, factor):
    """A trace in which every measured time is another."""
    if isinstance(document, dict):
        if "samples" in document:
            return SampledSeconds.of([factor * one for one in document["samples"]]).model_dump()
        return {
            name: scaled_times(one, factor)
            if not (name.endswith("_seconds") and isinstance(one, float))
            else one * factor
            for name, one in document.items()
        }
    if isinstance(document, list):
        return [scaled_times(one, factor) for one in document]
    return document


def shared_cores(document):
    """A trace whose averaged run had more ranks than cores."""
    document["runs"]["averaged"]["timing"]["oversubscribed"] = True
    return document


def test_the_evidence_counts_the_claims_that_another_machine_decides_otherwise(desk):
    desk.change_run("tiny_memory.halves_budget", machine="desk", status="failed")
    book = desk.load("reference-frozen")
    here = judge(book, Evidence(book))
    pairs = [(here[name].verdict, one.verdict) for name, one in there(desk).items()]
    decided = [pair for pair in pairs if UNDECIDED.isdisjoint(pair)]
    otherwise = [pair for pair in decided if len({*pair}) == 2]
    assert otherwise
    text = rendering.render(book)["evidence.md"]
    counts = re.findall(r">(\d+)</span>", text.split('machines/desk.html">')[1].split("</p>")[0])
    assert counts == [str(len(decided)), str(len(otherwise))]


def test_times_of_ranks_that_shared_cores_there_are_not_judged(desk):
    file = desk.trace("tiny_training", "desk")
    file.write_text(json.dumps(shared_cores(scaled_times(json.loads(file.read_text()), 0.25))))
    text = rendering.render(desk.load("reference-frozen"))
    assert SHARED_CORES in text["evidence/tiny_training.md"]
    verdicts = {
        name: one.verdict for name, one in there(desk).items() if SHARED_CORES in one.explanation
    }
    assert verdicts == {"averaging-is-slower": "does_not_apply"}
    alike = desk.trace("tiny_training", "reference-frozen")
    alike.write_text(json.dumps(shared_cores(json.loads(alike.read_text()))))
    assert there(desk)["averaging-is-slower"].verdict == "holds", "crowded on both: judged"


def index_of(book):
    """Each claim of the index: its page, the marks, the verdicts of machines."""
    press = Press()
    pages = press.printed(book)
    script = press.assets[claim_index.PLACE].decode()
    experiments, marks, verdicts, claims = json.loads(script[len("proofbook.claims(") : -3])
    found = {
        name: (experiments[at][1], marks[of].split(), verdicts[on])
        for at, of, on, name, _ in claims
    }
    return pages, found


def test_the_index_has_the_verdict_of_each_machine(desk):
    file = desk.trace("tiny_training", "desk")
    file.write_text(json.dumps(scaled_times(json.loads(file.read_text()), 0.25)))
    book = desk.load("reference-frozen")
    _, found = index_of(book)
    judged = there(desk)
    for name, (_, marks, verdicts) in found.items():
        of_desk = [css for places, machines, _, css in verdicts if "desk" in machines.split(", ")]
        wanted = judged[name].verdict.replace("_", "-") if name in judged else None
        assert of_desk == ([f"pb-{wanted}"] if wanted else [])
        assert (f"m1-v-{wanted}" in marks) == bool(wanted)


def test_a_claim_leads_back_to_the_lessons_that_use_it(book):
    uses = lessons_by_claim(book)
    pages = rendering.render(book)
    assert uses
    for name, lessons in uses.items():
        page = next(text for text in pages.values() if f'id="claim-{name}" data-search' in text)
        section = page.split(f'id="claim-{name}"')[1].split("</details>")[0]
        for topic, mode in lessons:
            assert f'href="../topics/{topic}/{mode}.html"' in section
            lesson = pages[f"topics/{topic}/{mode}.md"]
            assert f"#claim-{name}" in lesson or book.claims[name].showed
