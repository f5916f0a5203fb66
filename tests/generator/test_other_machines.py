"""Several machines in one book: what each says of a claim, and what a strict build takes."""

import json
import re

import pytest

from proofbook.generator.checks.claim_checks import broken_laws
from proofbook.generator.content.reading import load
from proofbook.generator.values.evaluation import Evidence
from tests.generator import scenes
from tests.generator.conftest import fresh, render
from tests.recorded import write
from tests.whole_pages import machines_behind


@pytest.mark.parametrize("load", [0.04, 0.4])
def test_pages_say_that_a_machine_was_busy_while_it_measured(copy, load):
    document = json.loads(copy.trace("tiny_memory").read_text())
    document["quiet"] = {"load_before_share": 0.0, "load_after_share": load, "canaries": {}}
    write(copy.trace("tiny_memory"), document)
    pages = render(copy.load())
    said = {path for path, page in pages.items() if "Other processes used its cores" in page}
    used = {path for path, page in pages.items() if "traces/reference-frozen/tiny_memory" in page}
    timed = {path for path in used if re.search(r"\d\s(ms|s)</a>", pages[path])}
    assert said == (timed - {"evidence/tiny_memory.md"} if load > 0.05 else set())


def test_runs_of_two_machines_are_compared_in_no_verdict(copy):
    names = [n for n, one in copy.load().claims.items() if "halves" in str(one)]
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.remove_run("tiny_memory.halves")
    evidence = Evidence(copy.strict())
    spread = [one for one in map(evidence.judged, names) if len(one.runs) > 1]
    assert spread
    assert {one.verdict for one in spread} == {"does_not_apply"}


def test_a_law_that_fails_names_the_run_with_another_setting_than_the_references(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    run = copy.recorded("tiny_memory.whole", "desk")
    ranks, settings = run["ranks"], run["settings"]
    ranks[0]["memory"]["peak_bytes"] *= 3
    key = next(iter(settings))
    changed = {**settings, key: settings[key] + 1}
    copy.change_run("tiny_memory.whole", "desk", ranks=ranks, settings=changed)
    book = copy.load()
    failed = [str(one) for one in broken_laws(book, Evidence(book).judged_claims)]
    said = f"; tiny_memory.whole has {key} {changed[key]}, the reference machine {settings[key]}"
    assert failed
    assert all(line.endswith(said) for line in failed if "tiny_memory.whole." in line)


def test_a_stale_trace_of_this_machine_stands_in_for_none(copy):
    """Then the message's remedy, `run`, measures it: it is no longer fresh."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.trace("tiny_memory").unlink()
    book = copy.strict(lambda trace: trace.experiment == "tiny_memory")
    assert "tiny_memory" not in book.traces


def test_links_know_the_digest_of_a_question_whichever_machine_it_comes_from(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run("tiny_memory.whole_budget", machine="desk", status="completed", error=None)
    pages = render(copy.load())
    marks = re.search(r'data-page="sharding/deep" data-items="([^"]*)"', pages["topics/index.md"])
    pairs = (one.lstrip("!").split(":") for one in marks[1].split())
    known = {name: digests for name, *digests in pairs}
    asks = pages["topics/sharding/deep-what-a-split-saves.md"]
    asked = dict(re.findall(r'data-item="([^"]+)" data-digest="([^"]+)"', asks))
    assert asked
    assert all(digest in known[name] for name, digest in asked.items())


def test_a_run_of_this_machine_is_lent_by_no_other_and_shown_on_the_reference_machines_pages(copy):
    for name in ("attic", "desk"):
        copy.add_machine(name, "tiny_memory")
    copy.remove_run("tiny_memory.halves_budget")
    copy.remove_run("tiny_memory.halves", "desk")
    evidence = Evidence(copy.load())
    for one in (evidence, evidence.reference):
        assert one.printable("tiny_memory.halves_budget.seed").machines == {"desk"}
    assert evidence.printable("tiny_memory.halves.seed").machines == {"reference-frozen"}


def test_each_run_that_a_machine_lacks_is_lent_by_the_first_that_has_it(copy):
    for name in ("desk", "attic"):
        copy.add_machine(name, "tiny_memory", "tiny_training")
    for run in ("halves", "halves_budget"):
        copy.remove_run(f"tiny_memory.{run}", "desk")
    copy.remove_run("tiny_memory.halves_budget")
    evidence = Evidence(copy.load("desk"))
    lenders = {"halves": "reference-frozen", "halves_budget": "attic"}
    for run, machine in lenders.items():
        assert evidence.printable(f"tiny_memory.{run}.seed").machines == {machine}


def test_a_verdict_over_two_machines_is_given_by_the_one_that_has_all_runs(copy):
    copy.add_machine("desk", "tiny_memory")
    copy.append(
        "claims/tiny_memory.yml",
        "  - id: over-both\n    kind: observation\n    says: The peak is the other model.\n"
        "    predicted: tiny_training.single.model.bytes\n    relation: equals\n"
        "    observed: tiny_memory.whole.ranks[0].memory.peak_bytes\n",
    )
    outcome = Evidence(copy.load()).judged("over-both")
    assert outcome.machine == "reference-frozen"
    assert outcome.predicted.machines == outcome.observed.machines == {"reference-frozen"}


@pytest.mark.parametrize(
    ("changed", "topic"),
    [
        ({}, None),
        ({"timing": {"wall_seconds": 1.0}}, "averaging"),  # too few steps for a time of a step
        ({"epochs": []}, "averaging"),
    ],
)
def test_a_topic_shows_the_reference_machine_where_this_one_lacks_a_value_of_it(
    copy, changed, topic
):
    """A run that ended as declared and has no such value: no row is left without its number."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run(scenes.AVERAGED, "desk", **changed)
    pages = render(copy.load())
    lessons = {path: text for path, text in pages.items() if path.startswith("topics/")}
    for path, text in lessons.items():
        if topic and path.startswith(f"topics/{topic}/"):
            assert "desk" not in machines_behind(text, text), path
    assert any("desk" in machines_behind(text, text) for text in lessons.values())
    assert not any("not measured here" in text for text in lessons.values())


def test_a_try_of_a_run_that_this_machine_skipped_shows_the_number_of_the_try(copy):
    scenes.readers_tried(copy)
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run(scenes.AVERAGED, "desk", **scenes.SKIPPED)
    pages = render(load(copy.content, None, fresh, with_tries=True))
    assert '<span class="pb-label">0.600</span>' in pages["topics/averaging/try.md"]
