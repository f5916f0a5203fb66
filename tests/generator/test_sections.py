"""A section of a page comes from one machine: its text, its figure, its verdicts, its question."""

import json
import re

import pytest

from generator.evidence.evaluation import Evidence
from generator.evidence.folio import BORROWED
from generator.pages import headings, rendering
from tests.whole_pages import machines_behind, mixed

DEEP = "topics/sharding/deep.md"
SKIPPED = {"status": "skipped", "reason": "one core", "ranks": []}


@pytest.fixture
def desk(copy):
    """The frozen book on a second machine that has measured everything."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    return copy


def sections(page):
    """The machines behind each section of a page, by its heading."""
    _, _, body = page.split("---\n", 2)
    return {
        re.sub(r"&#\d+;|<[^>]+>|#", "", section.splitlines()[0]).strip(): machines_behind(
            section, page
        )
        for section in re.split(r"^(?=#{1,3} )", body, flags=re.MULTILINE)
    }


def test_a_machine_that_lacks_nothing_shows_nothing_of_another(desk):
    found = sections(rendering.render(desk.load())[DEEP])
    assert {one for machines in found.values() for one in machines} == {"desk"}


def test_one_missing_run_takes_all_of_its_section_and_no_other(desk):
    desk.change_run("tiny_memory.halves", machine="desk", **SKIPPED)
    page = rendering.render(desk.load())[DEEP]
    found = sections(page)
    assert found["Why it matters"] == {"reference-frozen"}, "its text names the run"
    assert found["1 What a rank holds"] == {"desk"}, "it names other runs only"
    assert found["2 What a split saves"] == {"reference-frozen"}, "its question and its figure do"
    assert mixed(page) == []


def test_a_value_that_both_machines_print_alike_opens_on_the_machine_of_its_section(desk):
    desk.edit(
        "topics/sharding/deep.yml",
        "what: Each rank holds some layers",
        "what: It is {{ 2 * tiny_memory.whole.seed }}. Each rank holds some layers",
    )
    desk.edit(
        "topics/sharding/deep.yml",
        "why_it_matters: A rank",
        "why_it_matters: It is {{ 2 * tiny_memory.whole.seed }}. A rank",
    )
    desk.change_run("tiny_memory.halves", machine="desk", **SKIPPED)
    found = sections(rendering.render(desk.load())[DEEP])
    assert found["What is it?"] == {"desk"}
    assert found["Why it matters"] == {"reference-frozen"}


def test_a_questions_key_comes_from_the_machine_of_its_section(desk):
    """The desk's runs leave the question open: neither of its right options is right there."""
    desk.change_run("tiny_memory.whole_budget", machine="desk", status="completed", error=None)
    pages = rendering.render(desk.load())
    asked = pages[DEEP].split('data-item="who-fits"')[1].split('class="pb-question"')[0]
    assert " data-open" not in asked[: asked.index(">")]
    assert asked.count('data-verdict="right"') == 1
    assert sections(pages[DEEP])["2 What a split saves"] == {"reference-frozen"}


def test_links_know_the_digest_of_a_question_whichever_machine_it_comes_from(desk):
    desk.change_run("tiny_memory.whole_budget", machine="desk", status="completed", error=None)
    pages = rendering.render(desk.load())
    marks = re.search(r'data-page="sharding/deep" data-items="([^"]*)"', pages["topics/index.md"])
    pairs = (one.lstrip("!").split(":") for one in marks[1].split())
    known = {name: digests for name, *digests in pairs}
    asked = dict(re.findall(r'data-item="([^"]+)" data-digest="([^"]+)"', pages[DEEP]))
    assert asked
    assert all(digest in known[name] for name, digest in asked.items())
    assert len(known["who-fits"]) > 2, "the desk's runs leave it open"


def test_a_run_that_ended_otherwise_here_is_told_at_the_foot(desk):
    desk.change_run("tiny_memory.halves", machine="desk", expected_status="out_of_memory")
    page = rendering.render(desk.load())[DEEP]
    assert "tiny_memory.halves</code>, expected out of memory, ended completed" in page
    assert page.index("pb-lede") < page.index("pb-notice")


def test_links_to_runs_lead_to_the_row_of_the_machine_of_their_section(desk):
    page = "topics/averaging/cost.md"
    before = set(re.findall(r'href="([^"]+#run-[^"]+)"', rendering.render(desk.load())[page]))
    assert before
    name = sorted(before)[0].split("#run-")[1].replace("-", ".", 1)
    desk.change_run(name, machine="desk", **SKIPPED)
    pages = rendering.render(desk.load())
    after = set(re.findall(r'href="([^"]+#run-[^"]+)"', pages[page]))
    moved = {link for link in after if link.endswith("-on-reference-frozen")}
    assert moved
    for link in after:
        file, _, anchor = link.replace("../", "").partition("#")
        assert f'id="{anchor}"' in pages[file.replace(".html", ".md")]


def test_a_run_that_only_this_machine_has_stays_though_its_section_lacks_another(desk):
    desk.change_run("tiny_memory.whole", machine="desk", **SKIPPED)
    reference = desk.trace("tiny_memory")
    document = json.loads(reference.read_text())
    document["runs"]["older"] = document["runs"].pop("halves_budget")
    reference.write_text(json.dumps(document))
    text = desk.content / "topics" / "sharding" / "deep.yml"
    text.write_text(
        text.read_text().replace(
            "what: Each rank",
            "what: >-\n    A {{ tiny_memory.halves_budget.seed }} and {{ tiny_memory.whole.seed }}."
            " Each rank",
        )
    )
    evidence = Evidence(desk.load())
    assert evidence.printable("tiny_memory.halves_budget.seed").machines == {"desk"}
    lent = evidence.reference.printable("tiny_memory.halves_budget.seed")
    assert lent.machines == {"desk"}  # where the reference machine has no such run
    found = sections(rendering.render(desk.load())[DEEP])
    assert found["What is it?"] == {"desk"}


def test_a_verdict_over_two_machines_is_given_by_the_one_that_has_all_runs(copy):
    copy.add_machine("desk", "tiny_memory")
    copy.append(
        "claims/tiny_memory.yml",
        "  - id: over-both\n    kind: observation\n    says: The peak is the other model.\n"
        "    predicted: tiny_training.single.model.bytes\n    relation: equals\n"
        "    observed: tiny_memory.whole.ranks[0].memory.peak_bytes\n",
    )
    evidence = Evidence(copy.load())
    outcome = evidence.outcome("over-both")
    assert outcome.machine == "reference-frozen"
    assert outcome.predicted.machines == outcome.observed.machines == {"reference-frozen"}
    assert "over-both" in evidence.lacks


def test_a_claim_that_a_section_has_shown_with_its_numbers_is_not_shown_again(book):
    text = rendering.render(book)["topics/averaging/trace.md"]
    section = text.split("## Equal, not faster")[1].split("\n## ")[0]
    says = "A step of the averaged run takes longer."
    assert f"<td>{says}" not in section
    assert f"<li>{says}" in section
    verdicts = text.split("## What holds here")[1].split("\n## ")[0]
    assert f"<td>{says}" in verdicts


def foot(page):
    """What the foot says of machines, as text, and the sections that it links, by their anchors."""
    aside = page.split('<aside class="pb-foot"')[1]
    said = aside.split('<p class="pb-measured">')[1].split("</p>")[0]
    return re.sub(r"<[^>]+>", "", said), dict(re.findall(r'href="#([^"]+)">([^<]+)</a>', aside))


def test_the_foot_names_each_section_that_the_reference_machine_measured(desk):
    assert foot(rendering.render(desk.load())[DEEP]) == ("Measured on desk.", {})
    desk.change_run("tiny_memory.halves", machine="desk", **SKIPPED)
    page = rendering.render(desk.load())[DEEP]
    said, named = foot(page)
    assert said.startswith("Measured on desk. A section that needs a measurement which desk lacks")
    found = sections(page)
    borrowed = {name for name, behind in found.items() if behind == {"reference-frozen"}}
    assert borrowed
    assert borrowed <= set(named.values())
    assert not any("desk" in found[name] for name in named.values())
    anchors = headings.anchors(page.encode())
    assert all(anchors[re.sub(r"^\d+ ", "", name)] == one for one, name in named.items())
    assert "<!--" not in page


def test_the_foot_says_why_a_page_comes_from_the_reference_machine_alone(desk):
    for run in ("whole", "halves", "whole_budget", "halves_budget"):
        desk.change_run(f"tiny_memory.{run}", machine="desk", **SKIPPED)
    said, named = foot(rendering.render(desk.load())[DEEP])
    assert said.startswith("Measured on reference-frozen, the reference machine, because")
    assert said.endswith("needs at least one that desk lacks.")
    assert named == {}


def test_an_entry_below_no_heading_is_named_by_itself_and_a_paragraph_by_the_heading_above():
    begins, ends = BORROWED
    figure = '<figure class="pb-figure" id="figure-a">\n<figcaption class="b">A figure</figcaption>'
    body = (
        f"{begins}<p>first</p>{ends}{begins}{figure}</figure>{ends}\n"
        f"## One\n\n{begins}<p>of one</p>{ends}\n"
        f'{begins}<dt id="term-a">A term</dt>{ends}\n'
        f'{begins}<h3 class="pb-sentence" id="b">A <code>b</code> fits.</h3>{ends}\n'
        f"{begins}## Two\n\n### Inner\n{ends}\n## Three\n"
    )
    page, named = headings.borrowed(body)
    assert begins not in page
    assert ends not in page
    assert named == {
        "figure-a": "A figure",
        "one": "One",
        "term-a": "A term",
        "b": "A <code>b</code> fits",
        "two": "Two",
    }
