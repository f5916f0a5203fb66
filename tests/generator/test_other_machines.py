"""Several machines in one book: what each says of the same claims, and what no machine can move."""

import json
import posixpath
import re

import pytest

from generator.evidence.claim_topics import lessons_by_claim
from generator.evidence.evaluation import Evidence
from generator.evidence.other_machines import SHARED_CORES, other_outcomes
from generator.evidence.verdicts import judge
from generator.pages import rendering, sifting
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


def test_a_copied_machine_with_other_times_moves_no_law(desk):
    file = desk.trace("tiny_training", "desk")
    file.write_text(json.dumps(scaled_times(json.loads(file.read_text()), 0.25)))
    book = desk.load("reference-frozen")
    here = judge(book, Evidence(book))
    laws = {name for name, outcome in here.items() if outcome.claim.kind == "law"}
    found = there(desk)
    assert laws & set(found)
    assert {name: found[name].verdict for name in laws & set(found)} == {
        name: here[name].verdict for name in laws & set(found)
    }


def test_other_outcomes_on_a_second_machine_are_told_on_both_pages_of_machines(desk):
    desk.change_run("tiny_memory.halves_budget", machine="desk", status="failed")
    rendered = rendering.render(desk.load("reference-frozen"))
    for page in ("machines/desk.md", "machines/reference-frozen.md"):
        assert "Under the budget the split model completes." in rendered[page], page
    assert "another verdict" in rendered["evidence.md"]
    assert rendered["machines/index.md"].count('href="desk.html"') == 1


def test_a_claim_is_judged_on_a_machine_only_by_runs_that_are_all_its_own(copy):
    copy.add_machine("desk", "tiny_memory")
    (copy.content / "traces" / "this-machine").unlink()
    found = there(copy)
    assert found
    runs = {run.partition(".")[0] for outcome in found.values() for run in outcome.runs}
    assert runs == {"tiny_memory"}
    assert "mixes two machines" not in str(found)


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


def test_a_machine_that_skipped_a_run_is_not_named_on_a_lesson_for_that(desk):
    desk.change_run(
        "tiny_memory.halves_budget", machine="desk", status="skipped", reason="one core", ranks=[]
    )
    for shown in ("reference-frozen", "desk"):
        text = rendering.render(desk.load(shown))["topics/sharding/experiment.md"]
        assert "pb-other-machines" not in text, shown


def test_a_skipped_run_names_the_command_that_measures_it_as_code(desk):
    reason = "too heavy; `python -m runners run x --full` measures <it>"
    desk.change_run("tiny_memory.halves", machine="desk", status="skipped", reason=reason, ranks=[])
    pages = rendering.render(desk.load("reference-frozen"))
    for page in ("evidence/tiny_memory.md", "machines/desk.md"):
        code = "too heavy; <code>python -m runners run x --full</code> measures &lt;it&gt;"
        assert code in re.sub(r'<span class="pb-keep">(.*?)</span>', r"\1", pages[page]), page


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


def test_a_machines_page_lists_apart_what_applies_to_one_of_two_machines(desk):
    desk.change_run(
        "tiny_memory.halves", machine="desk", status="skipped", reason="one core", ranks=[]
    )
    text = rendering.render(desk.load("reference-frozen"))["machines/desk.md"]
    title, beyond = text.replace('<span class="pb-keep">', "").split(
        "those that apply only here or only on reference-frozen</span>:"
    )
    assert "does not apply" in beyond.split("</details>")[0]
    assert "With another verdict there:" not in title


def test_a_run_left_to_the_full_measurement_names_the_command_once(desk):
    reason = needs_full("tiny_memory")
    for run in ("halves", "halves_budget"):
        desk.change_run(
            f"tiny_memory.{run}", machine="desk", status="skipped", reason=reason, ranks=[]
        )
    pages = rendering.render(desk.load("reference-frozen"))
    assert pages["evidence/tiny_memory.md"].count("make traces FULL=1 NAMES=tiny_memory") == 1
    assert pages["machines/desk.md"].count("make traces FULL=1") == 1


def test_a_claim_shows_the_first_verdict_that_runs_decide_and_its_machine(desk):
    desk.change_run(
        "tiny_memory.halves", machine="desk", status="skipped", reason="one core", ranks=[]
    )
    text = rendering.render(desk.load("desk"))["evidence/tiny_memory.md"]
    claims = re.findall(r"<summary>(.*?)</summary>", text)
    lacking = [one for one in claims if "(reference-frozen)" in one]
    assert lacking
    assert all("does not apply" not in one and "holds" in one for one in lacking)
    assert not any("differs between machines" in one for one in lacking), "one skipped its runs"
    assert any("reference-frozen" not in one and "holds" in one for one in claims)


def test_a_book_of_one_machine_compares_with_nothing(book):
    assert other_outcomes(book, judge(book, Evidence(book))) == {}
    assert not any("pb-other-machines" in text for text in rendering.render(book).values())


def test_every_law_stands_with_predicted_observed_error_and_verdict(book):
    pages = rendering.render(book)
    text = "".join(page for path, page in pages.items() if path.startswith("evidence/"))
    sections = re.findall(r'<details class="pb-details pb-claim.*?</details>', text, re.DOTALL)
    assert len(sections) == len(book.claims)
    for section in sections:
        name = re.search(r'id="claim-([a-z0-9@._-]+)"', section)[1]
        claim = book.claims[name]
        assert "Predicted" in section
        assert "Observed" in section
        assert 'class="pb-verdict' in section
        assert ("Law" if claim.kind == "law" else "Observation") in section
        if claim.source:
            assert book.references[claim.source].url in section


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


def test_the_index_leads_to_every_claim_(copy):
    book = copy.load()
    pages, found = index_of(book)
    assert f'data-claims="{claim_index.PLACE}"' in pages["evidence.md"].decode()
    assert sorted(found) == sorted(book.claims)
    for name, (page, marks, verdicts) in found.items():
        assert f'id="claim-{name}"' in pages[page.replace(".html", ".md")].decode()
        assert f"k-{book.claims[name].kind}" in marks
        assert verdicts


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


def test_the_summary_counts_what_the_verdicts_say(book):
    outcomes = judge(book, Evidence(book))
    laws = [one for one in outcomes.values() if one.claim.kind == "law"]
    holding = sum(one.verdict == "holds" for one in laws)
    text = rendering.render(book)["evidence.md"].split("## Summary")[1].split("<table")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    open_here = sum(one.verdict in ("does_not_apply", "no_evidence") for one in laws)
    assert words.startswith(f"{holding} of {len(laws) - open_here} laws hold")
    assert f"{len(outcomes) - len(laws)} observations" in words


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


def test_every_choice_has_a_rule_that_hides_what_it_leaves_out():
    css = sifting.css(["ddp"], 2, ["holds", "does_not_hold"])
    for choice in ("k-law", "t-ddp", "m1", "v-holds", "v-does-not-hold", "v-differs"):
        assert f'option[value="{choice}"]:checked) .pb-one:not([data-is~="{choice}"])' in css
    assert '.pb-one:not([data-is~="m1-v-holds"]){display:none}' in css


def test_a_thing_bears_the_marks_of_its_topics_kind_and_verdicts():
    marks = sifting.marks(["ddp"], "law", [("m0", "holds"), ("m1", "does_not_hold")], differs=True)
    assert set(marks.split()) == {
        "k-law", "t-ddp", "m0", "v-holds", "m0-v-holds",
        "m1", "v-does-not-hold", "m1-v-does-not-hold", "v-differs",
    }  # fmt: skip


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


def test_a_part_that_was_measured_before_its_whole_is_shown_on_its_own(copy):
    copy.add_machine("desk/1-of-2-cores", "tiny_memory")
    assert list(copy.load().machines) == ["desk/1-of-2-cores", "reference-frozen"]


def test_a_trace_that_lies_in_the_folder_of_a_part_says_so(copy):
    copy.add_machine("desk/1-of-2-cores", "tiny_memory")
    path = copy.content / "traces" / "desk" / "1-of-2-cores" / "machine.json"
    path.write_text(path.read_text().replace("desk/1-of-2-cores", "desk"))
    (told,) = copy.errors()
    assert "name: is 'desk', the folder says 'desk/1-of-2-cores'" in told
