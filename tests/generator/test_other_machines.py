"""Several machines in one book: what each says of the same claims, and what no machine can move."""

import json
import posixpath
import re

import pytest

from generator.evidence.claim_topics import lessons_by_claim
from generator.evidence.evaluation import Evidence
from generator.evidence.other_machines import SHARED_CORES, other_outcomes
from generator.evidence.verdicts import judge
from generator.pages import rendering
from generator.pages.press import Press
from generator.pages.views import claim_index
from generator.website import publish
from runners.traces.measured import SampledSeconds
from runners.traces.skips import needs_full


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


def test_other_outcomes_on_a_second_machine_are_told_on_both_pages_of_machines(desk):
    desk.change_run("tiny_memory.halves_budget", machine="desk", status="failed")
    rendered = rendering.render(desk.load("reference-frozen"))
    for page in ("machines/desk.md", "machines/reference-frozen.md"):
        assert "Under the budget the split model completes." in rendered[page], page
    assert "another verdict" in rendered["evidence.md"]
    assert rendered["machines/index.md"].count('href="desk.html"') == 1


def test_a_law_that_does_not_apply_on_another_machine_says_so_and_is_not_broken(desk):
    desk.change_run("tiny_memory.halves", machine="desk", status="skipped", reason="one core")
    found = [one for one in there(desk).values() if "tiny_memory.halves" in one.runs]
    assert found
    assert {one.verdict for one in found} == {"does_not_apply"}
    assert not any(one.is_broken_law for one in found)
    text = rendering.render(desk.load("reference-frozen"))["evidence.md"]
    assert "does not apply" in text


def test_a_lesson_compares_its_claims_with_every_other_machine(desk):
    desk.change_run("tiny_memory.halves_budget", machine="desk", status="failed")
    alone = {
        name
        for name, text in rendering.render(desk.load("desk")).items()
        if "pb-other-machines" in text
    }
    text = rendering.render(desk.load("reference-frozen"))["topics/sharding/experiment.md"]
    aside = text.split('class="pb-other-machines"')[1].split("</aside>")[0]
    assert "desk" in aside
    assert "Under the budget the split model completes." in aside
    assert aside.count("<dt>") == 1
    assert alone, "the second machine's own pages compare too"


@pytest.mark.parametrize(("factor", "is_named"), [(1.01, False), (0.25, True)])
def test_a_lesson_names_another_machine_only_where_a_value_differs_beyond_its_spread(
    desk, factor, is_named
):
    file = desk.trace("tiny_training", "desk")
    file.write_text(json.dumps(scaled_times(json.loads(file.read_text()), factor)))
    text = rendering.render(desk.load("reference-frozen"))["topics/averaging/trace.md"]
    assert ("pb-other-machines" in text) == is_named
    if is_named:
        aside = text.split('class="pb-other-machines"')[1].split("</aside>")[0]
        assert aside.count("<dt>") == 1
        assert "A step of the averaged run takes longer." in aside
        assert aside.count('class="pb-verdict pb-holds"') == 2, "the verdicts agree"


def test_times_of_ranks_that_shared_cores_there_are_not_judged_and_not_compared(desk):
    file = desk.trace("tiny_training", "desk")
    file.write_text(json.dumps(shared_cores(scaled_times(json.loads(file.read_text()), 0.25))))
    text = rendering.render(desk.load("reference-frozen"))
    assert "pb-other-machines" not in text["topics/averaging/trace.md"]
    assert SHARED_CORES in text["evidence/tiny_training.md"]
    verdicts = {
        name: one.verdict for name, one in there(desk).items() if SHARED_CORES in one.explanation
    }
    assert verdicts == {"averaging-is-slower": "does_not_apply"}
    alike = desk.trace("tiny_training", "reference-frozen")
    alike.write_text(json.dumps(shared_cores(json.loads(alike.read_text()))))
    assert there(desk)["averaging-is-slower"].verdict == "holds", "crowded on both: judged"


def test_skipped_runs_stand_in_one_fold_below_the_table_with_every_place_that_links_lead_to(desk):
    def on_desk():
        page = rendering.render(desk.load("desk"))["evidence/tiny_memory.md"].replace("<wbr>", "")
        before, _, rest = page.partition('\n## On <span class="pb-keep">desk</span>')
        return before, rest.partition("\n## ")[0]

    desk.change_run("tiny_memory.halves", machine="desk", status="skipped", reason="x", ranks=[])
    before, own = on_desk()
    assert "\n## On" not in before
    table, _, fold = own.partition("</table>")
    assert ("<code>halves_budget" in table, "<code>halves</code>" in table) == (True, False)
    assert "1</span> run was skipped on <code>" in fold
    assert fold.count('id="run-tiny_memory-halves"') == fold.count('id="halves"') == 1
    for run in ("whole", "whole_budget", "halves_budget"):
        desk.change_run(f"tiny_memory.{run}", "desk", status="skipped", reason="x", ranks=[])
    before, own = on_desk()
    assert "\n## On" in before, "a machine with numbers comes first"
    assert ("<table" in own, own.count("4</span> runs were skipped on")) == (False, 1)


def test_a_run_left_to_the_full_measurement_names_the_command_once(desk):
    reason = needs_full("tiny_memory")
    for run in ("halves", "halves_budget"):
        desk.change_run(
            f"tiny_memory.{run}", machine="desk", status="skipped", reason=reason, ranks=[]
        )
    pages = rendering.render(desk.load("reference-frozen"))
    assert pages["evidence/tiny_memory.md"].count("make traces FULL=1 NAMES=tiny_memory") == 1
    assert pages["machines/desk.md"].count("make traces FULL=1") == 1


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


def test_a_claims_topics_are_those_that_name_it_and_those_of_its_file(copy):
    from generator.evidence.claim_topics import topics_by_claim

    before = topics_by_claim(copy.load())
    file = next(iter(sorted((copy.content / "claims").glob("*.yml"))))
    file.write_text("topics: [asking]\n" + file.read_text())
    after = topics_by_claim(copy.load())
    assert any(before.values())
    moved = {name for name in after if "asking" in after[name]}
    assert moved > {name for name in before if "asking" in before[name]}


def test_a_topic_that_does_not_exist_is_refused_with_its_place(copy):
    file = next(iter(sorted((copy.content / "claims").glob("*.yml"))))
    file.write_text("topics: [askin]\n" + file.read_text())
    (error,) = copy.errors()
    assert "no topic 'askin'" in error
    assert "asking" in error


def test_a_part_of_a_machine_stands_in_the_book_as_a_machine_whose_links_lead_somewhere(copy):
    part = "desk/1-of-2-cores"
    copy.add_machine("desk", "tiny_memory")
    copy.add_machine(part, "tiny_memory", "tiny_training")
    described = copy.content / "traces" / part / "machine.json"
    facts = {**json.loads(described.read_text()), "num_cores": 1, "num_installed_cores": 2}
    described.write_text(json.dumps(facts))
    book = copy.load()
    assert list(book.machines) == [part, "reference-frozen", "desk"]
    files = publish.site_files(book, copy.content, Press())
    assert f"traces/{part}/tiny_training.json" in files
    ours = [path for path in files if path.startswith("machines/") or path == "evidence.md"]
    assert f"machines/{part}.md" in ours
    for path in ours:
        links = re.findall(r'href="([^"#:]+\.(?:html|json))', files[path].decode())
        assert links
        for link in links:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
            assert target.replace(".html", ".md") in files, (path, link)
    text = files[f"machines/{part}.md"].decode()
    assert "Installed cores, not all of which these ranks may use" in text
    assert "Installed cores" not in files["machines/desk.md"].decode()
