"""Committed plans in a book: their values, claims over them, pages, and files that are refused."""

import json
import re
import shutil
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import pytest

from proofbook.companions.planner import layouts_named
from proofbook.companions.planner.answers.answer import Layout
from proofbook.companions.planner.answers.law_of_time import Bounds, Cluster
from proofbook.companions.planner.answers.published import is_stale
from proofbook.companions.planner.layouts_named import Planned
from proofbook.companions.planner.pages import plans, published
from proofbook.companions.planner.words import PlanFile
from proofbook.companions.verify import reports
from proofbook.companions.verify.pages import GROUPS
from proofbook.companions.verify.report import causes
from proofbook.generator.__main__ import main
from proofbook.generator.checks import trace_checks
from proofbook.generator.content.reading import load
from proofbook.generator.kinds.figures.drawing import NARROW
from proofbook.generator.kinds.figures.drawings.strip import Bar, strip
from proofbook.generator.kinds.figures.play import frame
from proofbook.generator.pages.press import Press
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.perturbed import counterexample
from tests.generator.conftest import CONTENT, fresh, render
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
    monkeypatch.setattr(layouts_named, "planned", lambda *_: iter([one]))
    said = "run is dominated by less; name one of those"
    mistakes = [*layouts_named.mistakes(None, SimpleNamespace(model=None))]
    assert mistakes == [(("techniques", 2, "planned"), said)]


def test_no_two_published_peaks_have_the_same_words(real):
    evidence = Evidence(real)
    folio = Folio(evidence, evidence, {}, "plan/page.md")
    rows = published.peak_rows(real.file(PlanFile).published, folio)
    said = [(re.sub("<small.*?</small>|<[^>]*>", "", row[0]), row[1]) for row in rows]
    assert len({*said}) == len(said) > 50


# --- a watched script on its page, the page of the book that shows one, and the table of causes


NAME = "norms_twice"
PAGE = f"""---
title: Verify
description: It
---
```verified
path: content/verified/{NAME}.py
title: Norms
```
"""


@pytest.fixture
def watched(copy):
    """The frozen book with a page that shows a report, a run of a reader's, and odd files."""
    shutil.copytree(CONTENT / "verified", copy.content / "verified")
    (copy.content / "pages" / "verify.md").write_text(PAGE)
    (copy.content / "tries").mkdir()
    trace = (CONTENT / "verified" / f"{NAME}.json").read_text()
    (copy.content / "tries" / "own-1.verify.json").write_text(trace)
    (copy.content / "tries" / "cut.verify.json").write_text(trace[:200])
    (copy.content / "tries" / "edited.verify.json").write_text(
        trace.replace('"rank": 0', '"rank": 1')
    )
    return copy


def _served(copy):
    return render(load(copy.content, None, fresh, with_tries=True))


def test_a_watched_script_has_a_page_with_verdict_then_findings_then_the_first_tensor_that_differs(
    watched,
):
    page = _served(watched)["verify/own-1.md"]
    verdict = page.index('pb-does-not-hold">differs</strong>')
    finding = page.index("Gradients of normalizations too large by the ranks</a></h2>")
    drawn = page.index("The first that differs: 1.norm.weight.</desc>")
    assert re.search("Each tensor beside that of one process: .*10 agree, 4 differ", page)
    first = page.index('pb-does-not-hold">differs</span>')
    row = page.rindex('<th scope="row">', 0, first)
    assert verdict < finding < drawn < row
    assert re.sub(r"<[^>]+>", "", page[row:].partition("</th>")[0]) == "1.norm.weight"
    assert page.count('pb-does-not-hold">differs</span>') == 4


def test_the_page_of_the_book_lists_own_runs_and_names_what_cannot_be_read_only_while_serving(
    watched,
):
    page = _served(watched)["verify.md"]
    assert 'href="verify/own-1.html"' in page
    lines = [one for one in page.splitlines() if "Not shown: " in one]
    assert "content/tries/cut.verify.json: not a whole JSON file" in lines[0]
    assert "content/tries/edited.verify.json: edited or cut" in lines[1]
    published = render(watched.load())
    assert "verify/own-1.md" not in published
    assert "own-1" not in published["verify.md"]
    assert "Not shown" not in published["verify.md"]


def test_the_report_of_the_book_stands_as_printed_and_each_cause_once_in_the_order_of_groups(
    watched,
):
    page = render(watched.load())["verify.md"]
    printed = re.sub(r"<[^>]+>", "", page)
    assert "verify: differs (gradients of normalizations too large by the ranks)\n" in printed
    rows = re.findall(r'<tr id="cause-[^"]+"><th scope="row">(.*?)</th>', page)
    assert rows == [
        one.title.replace("'", "&#39;")
        for group in GROUPS for one in causes().values() if one.group == group
    ]  # fmt: skip
    assert len(rows) == len(causes())


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda folder: (folder / f"{NAME}.py").write_text("pass\n"), "is another program now"),
        (lambda folder: (folder / f"{NAME}.json").unlink(), "no report of `verify` lies beside it"),
        (lambda folder: (folder / f"{NAME}.json").write_text("{"), "not a whole JSON file"),
    ],
)
def test_a_report_that_is_not_of_the_program_on_the_page_is_refused(watched, break_it, says):
    break_it(watched.content / "verified")
    assert says in " ".join(watched.errors())


def test_a_strict_build_refuses_a_report_that_another_verify_judged(watched, monkeypatch):
    book = watched.load()
    kept = book.part(reports.Reports).verified[f"content/verified/{NAME}.py"]
    monkeypatch.setattr(reports, "own_digest", lambda: kept.judge)
    assert not [one for one in trace_checks.problems(book, {}) if NAME in one]
    monkeypatch.setattr(reports, "own_digest", lambda: "0" * 16)
    (line,) = (one for one in trace_checks.problems(book, {}) if NAME in one)
    command = f"verify --as-reference --ranks 2 content/verified/{NAME}.py`"
    assert line.endswith(f"has changed; run `python -m runners {command}")


def test_a_bar_crosses_the_dashed_line_where_its_tensor_differs_and_only_there():
    times = (0.0, 1e-9, 0.99, 1.01, 40.0, 1e9, None)
    drawn = strip([Bar(f"t{one}", "", one) for one in times], "allowed", NARROW)
    tops = [float(y) for y in re.findall(r'<rect [^>]*? y="([\d.]+)"', "".join(drawn.parts))]
    (line,) = {
        float(y)
        for y in re.findall(r'<line class="pb-budget" x1="0" y1="([\d.]+)"', "".join(drawn.parts))
        if float(y) < 130
    }
    assert [top < line for top in tops] == [False, False, False, True, True, True, False]
    assert ">t1.01</text>" in "".join(drawn.parts)


@pytest.mark.parametrize(
    ("model", "within", "between"),
    [("llama_13b", "tensor", "pipeline"), ("gpt2_1_5b", "shards", "replicas")],
)
def test_a_page_of_plans_draws_the_mesh_of_a_layout_of_several_axes(real, model, within, between):
    folio = Folio(Evidence(real), Evidence(real), path="plan/one.md")
    (figure,) = plans._mesh(plans._grid(f"plan_{model}", folio), folio)
    said = unescape(str(frame.play(figure, folio).play.drawn))
    last = "ranks 0, 1, 2, 3, 4, 5, 6, 7 and ranks 8, 9, 10, 11, 12, 13, 14, 15; within a node"
    assert f"Along {within}: {last}" in said
    assert re.search(rf"Along {between}: ranks 0, 8 and .*? ranks 7, 15; between nodes", said)
