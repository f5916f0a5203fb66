"""Committed plans in a book: their values, claims over them, pages, and files that are refused."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from proofbook.generator.__main__ import main
from proofbook.generator.checks import lesson_checks, trace_checks
from proofbook.generator.checks.lesson_checks import Planned
from proofbook.generator.pages.press import Press
from proofbook.generator.pages.views import published
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.perturbed import counterexample
from proofbook.runners.planner.answers.answer import Layout
from proofbook.runners.planner.answers.law_of_time import Bounds, Cluster
from proofbook.runners.planner.answers.published import is_stale
from tests.recorded import write

HELD = "plan_tiny.fsdp_on_4.ranks[0].memory.phases['held']"
CLAIMS = """\
claims:
  - id: plan-shares
    kind: law
    for: [plan_tiny.single_on_4, plan_tiny.fsdp_on_4]
    says: Between steps a rank holds its share of the tensor bytes of the whole state.
    predicted: 4 * cited['fp32-width'] * run.settings.num_parameters / RANKS
    observed: run.ranks[0].memory.phases['held']
    tolerance: {relative: 0.05}
    source: fp32-width
"""


def test_a_formula_may_mix_a_plan_with_what_a_machine_measured(evidence):
    value = evidence.value(f"{HELD} / tiny_memory.whole.ranks[0].memory.peak_bytes")
    assert value.kind == "computed"
    assert value.machines == {"reference-frozen"}


def test_a_law_over_plans_is_judged_and_can_be_made_false(copy):
    text = CLAIMS.replace("RANKS", "run.settings.num_ranks")
    (copy.content / "claims" / "plans.yml").write_text(text.replace("plan_tiny.single_on_4, ", ""))
    book = copy.load()
    evidence = Evidence(book)
    claim = next(one for one in book.claims if one.startswith("plan-shares"))
    outcome = evidence.judged(claim)
    assert outcome.verdict == "holds"
    assert outcome.runs == ("plan_tiny.fsdp_on_4",)
    assert counterexample(evidence, claim)
    page = Press().printed(book)["plan/tiny.md"].decode()
    assert f'id="claim-{claim}"' in page
    assert "on one of four ranks" in page


def test_a_law_over_plans_that_does_not_hold_is_a_problem_of_the_book(copy):
    (copy.content / "claims" / "plans.yml").write_text(CLAIMS.replace("RANKS", "2"))
    book = copy.load()
    lines = trace_checks.problems(book, Evidence(book).judged_claims)
    assert sum("law plan-shares" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:-40], "not a whole JSON file"),
        (lambda text: text.replace('"peak_bytes":', '"peak_bytes":2', 1), "edited or cut"),
        (lambda text: text.replace('"microbatch"', '"microbatches"', 1), "microbatch"),
    ],
)
def test_a_cut_or_edited_file_is_one_located_line_and_exit_code_2(copy, change, said, capsys):
    path = copy.content / "planner" / "plans" / "tiny.json"
    path.write_text(change(path.read_text()))
    assert main(["check", "--content", str(copy.content)]) == 2
    lines = capsys.readouterr().err.splitlines()
    located = [line for line in lines if "plans/tiny.json" in line]
    assert len(located) == 1
    assert said in located[0]


def test_a_grid_of_older_code_is_a_problem_that_names_its_file_and_the_command(copy):
    path = copy.content / "planner" / "plans" / "tiny.json"
    write(path, json.loads(path.read_text()) | {"code": "older"})
    book = copy.load(is_stale=is_stale)
    lines = trace_checks.problems(book, Evidence(book).judged_claims)
    (line,) = (one for one in lines if "plans/tiny.json" in one)
    assert "python -m runners plan check tiny --write" in line


LAYOUT = Layout(None, Cluster(1, 8, 1, 1, 1), Bounds(1, 2, 0), 50, "fits")  # which links decide


@pytest.mark.parametrize(
    ("seconds", "fits", "better"), [(1, False, ["other"]), (1, True, []), (1.5, False, [])]
)
def test_less_memory_is_better_where_it_is_scarce_and_computing_takes_no_longer(
    seconds, fits, better
):
    other = replace(LAYOUT, bounds=Bounds(seconds, 2, 0), needed_bytes=40)
    assert Planned((), "run", LAYOUT, {"other": other}, fits).better == better


def test_a_layout_of_a_lesson_that_another_one_dominates_is_told_at_its_place(monkeypatch):
    others = {"less": replace(LAYOUT, bounds=Bounds(1, 1.5, 0)), "equal": LAYOUT}
    one = Planned(("techniques", 2), "run", LAYOUT, others, fits=False)
    monkeypatch.setattr(lesson_checks, "planned", lambda *_: iter([one]))
    said = "run is dominated by less; name one of those"
    mistakes = [*lesson_checks.layout_mistakes(None, SimpleNamespace(model=None))]
    assert mistakes == [(("techniques", 2, "planned"), said)]


def test_no_two_published_peaks_have_the_same_words(real):
    evidence = Evidence(real)
    folio = Folio(evidence, evidence, {}, "plan/page.md")
    rows = published.peak_rows(real.plan.published, folio)
    said = [(re.sub("<small.*?</small>|<[^>]*>", "", row[0]), row[1]) for row in rows]
    assert len({*said}) == len(said) > 50
