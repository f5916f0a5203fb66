"""Items over several cases (`for:`): each reads its own runs, has its own key, or is a mistake."""

import json
import re

from proofbook.generator.items.item_checks import answerable_cases
from proofbook.generator.items.kinds import digest_of, kind_of
from proofbook.generator.pages.press import Press
from proofbook.generator.values.evaluation import Evidence

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
