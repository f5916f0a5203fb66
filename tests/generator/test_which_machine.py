"""A topic comes from one machine: the one at hand if it has measured what the topic names."""

import json
import re

import pytest

from generator.evidence.evaluation import Evidence
from generator.pages import rendering
from tests.whole_pages import machines_behind

DEEP = "topics/sharding/deep.md"
SKIPPED = {"status": "skipped", "reason": "one core", "ranks": []}


@pytest.fixture
def desk(copy):
    """The frozen book on a second machine that has measured everything."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    return copy


def behind(pages, folder):
    """The machines behind each page of a folder, and whether its top names another machine."""
    return {
        path: (machines_behind(text, text), "has not measured all runs" in text)
        for path, text in pages.items()
        if path.startswith(folder)
    }


@pytest.mark.parametrize("is_measured", [True, False])
def test_a_run_that_is_missing_or_ended_otherwise_takes_every_page_of_its_topic_alone(
    desk, is_measured
):
    if is_measured:
        desk.change_run("tiny_training.averaged", machine="desk", expected_status="out_of_memory")
    else:
        desk.trace("tiny_training", "desk").unlink()
    pages = rendering.render(desk.load())
    averaging, sharding = behind(pages, "topics/averaging/"), behind(pages, "topics/sharding/")
    for machines, is_said in averaging.values():
        assert machines in (set(), {"reference-frozen"})
        assert is_said == bool(machines)
    assert {"desk"} in [machines for machines, _ in sharding.values()]
    assert not any(is_said for _, is_said in sharding.values())
    learn = pages["topics/averaging/learn.md"]
    assert ("expected out of memory, ended completed" in learn) == is_measured


def test_a_skipped_run_leaves_the_topic_and_its_figure_is_the_reference_machines(desk):
    desk.change_run("tiny_memory.halves", machine="desk", **SKIPPED)
    page = rendering.render(desk.load())[DEEP]
    assert "has not measured all runs" not in page
    assert machines_behind(page, page) == {"desk", "reference-frozen"}
    for figure in re.findall(r"<figure.*?</figure>", page, re.DOTALL):
        assert len(machines_behind(figure, page)) == 1
        is_lent = machines_behind(figure, page) == {"reference-frozen"}
        assert is_lent == ("reference.</small>" in figure)
    marked = re.findall(r'data-v="\d+">[^<]*<small class="pb-nature">reference</small>', page)
    assert marked
    assert all(machines_behind(one, page) == {"reference-frozen"} for one in marked)


def test_a_simulated_run_is_about_no_machine(desk):
    desk.change_run("tiny_memory.halves", nature="simulated")
    desk.change_run("tiny_memory.halves", machine="desk", nature="simulated", **SKIPPED)
    page = rendering.render(desk.load())[DEEP]
    assert "has not measured all runs" not in page
    assert '"pb-nature">reference' not in page


def test_links_know_the_digest_of_a_question_whichever_machine_it_comes_from(desk):
    desk.change_run("tiny_memory.whole_budget", machine="desk", status="completed", error=None)
    pages = rendering.render(desk.load())
    marks = re.search(r'data-page="sharding/deep" data-items="([^"]*)"', pages["topics/index.md"])
    pairs = (one.lstrip("!").split(":") for one in marks[1].split())
    known = {name: digests for name, *digests in pairs}
    asked = dict(re.findall(r'data-item="([^"]+)" data-digest="([^"]+)"', pages[DEEP]))
    assert asked
    assert all(digest in known[name] for name, digest in asked.items())


def test_links_to_runs_lead_to_the_row_of_the_machine_that_measured_them(desk):
    desk.change_run("tiny_training.averaged", machine="desk", **SKIPPED)
    pages = rendering.render(desk.load())
    links = re.findall(r'href="([^"]+#run-[^"]+)"', pages["topics/averaging/cost.md"])
    assert any(link.endswith("-on-reference-frozen") for link in links)
    for link in links:
        file, _, anchor = link.replace("../", "").partition("#")
        assert f'id="{anchor}"' in pages[file.replace(".html", ".md")]


def test_a_run_that_only_this_machine_has_is_shown_on_the_reference_machines_pages(desk):
    path = desk.trace("tiny_memory")
    document = json.loads(path.read_text())
    document["runs"]["older"] = document["runs"].pop("halves_budget")
    path.write_text(json.dumps(document))
    evidence = Evidence(desk.load())
    for one in (evidence, evidence.reference):
        assert one.printable("tiny_memory.halves_budget.seed").machines == {"desk"}


def test_a_verdict_over_two_machines_is_given_by_the_one_that_has_all_runs(copy):
    copy.add_machine("desk", "tiny_memory")
    copy.append(
        "claims/tiny_memory.yml",
        "  - id: over-both\n    kind: observation\n    says: The peak is the other model.\n"
        "    predicted: tiny_training.single.model.bytes\n    relation: equals\n"
        "    observed: tiny_memory.whole.ranks[0].memory.peak_bytes\n",
    )
    outcome = Evidence(copy.load()).outcome("over-both")
    assert outcome.machine == "reference-frozen"
    assert outcome.predicted.machines == outcome.observed.machines == {"reference-frozen"}
