"""Learn, Why, Try, Cost and the worked example, against the lesson and the trace behind each."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest
import yaml

from generator.content.errors import ContentErrors
from generator.content.lesson import MODES
from generator.evidence import law_sides, units, verdicts
from generator.evidence.evaluation import Evidence
from generator.evidence.units import AS_RULED
from generator.pages import rendering
from generator.pages.headings import anchors
from tests.generator.explained_program import PROGRAM

FROZEN = Path(__file__).parents[1] / "book" / "content"
TOPIC = FROZEN / "topics" / "averaging"
LEARN, WHY, TRY, COST, WORKED = (
    f"topics/averaging/{mode}.md" for mode in ("learn", "why", "try", "cost", "worked")
)


@pytest.fixture(scope="module")
def rendered(book):
    return rendering.render(book)


@pytest.fixture(scope="module")
def lessons():
    return {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted(TOPIC.glob("*.yml"))
    }


@pytest.fixture(scope="module")
def runs():
    return {
        f"{path.stem}.{name}": run
        for path in (FROZEN / "traces" / "reference-frozen").glob("tiny_*.json")
        for name, run in json.loads(path.read_text())["runs"].items()
    }


def headings(text):
    found = re.findall(r"^## (.*)$", text, re.MULTILINE)
    return [re.sub(r"&#\d+;|<[^>]+>", "", heading).strip() for heading in found]


def plain(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).replace("\u00a0", " ").strip()


def rows(text):
    """The cells of every row of every table, as plain text."""
    return [
        [plain(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    ]


def test_the_frozen_book_has_a_page_of_every_mode(book):
    assert {mode for topic in book.topics for mode in topic.lessons} == set(MODES)


# Learn.


def test_learn_goes_from_a_guess_to_what_to_take_away(rendered):
    assert headings(rendered[LEARN]) == [
        "Guess first", "The idea", "The smallest real program", "Check yourself",
        "Takeaway",
    ]  # fmt: skip


def test_what_would_answer_the_guess_waits_for_it(rendered, lessons):
    text, guess = rendered[LEARN], lessons["learn"]["guess"]
    waits = [found.start() for found in re.finditer(f'data-after="{guess}"', text)]
    assert len(waits) == 5
    assert text.index(f'data-item="{guess}"') < waits[0]
    assert f'<details class="pb-details pb-reveal" data-after="{guess}">' in text
    assert waits[0] < text.index("They drifted apart") < waits[1] < text.index("takes the mean of")
    assert waits[2] < text.index('class="highlight"') < text.index("pb-notes")
    assert text.index("What it printed") < text.index("ended with a loss of") < waits[3]
    assert waits[3] < text.index('data-as="question"') < waits[4]


def test_each_note_names_the_line_on_which_its_code_stands(rendered, lessons):
    lesson = lessons["learn"]
    code = (FROZEN.parent / lesson["program"]["path"]).read_text().splitlines()
    notes = rendered[LEARN].split('<ol class="pb-notes">')[1].split("</ol>")[0]
    told = re.findall(r'class="pb-label">line (\d+)</span> <code>(.*?)</code>', notes)
    assert len(told) == len(lesson["walkthrough"]) >= 2
    for number, html in told:
        assert code[int(number) - 1].strip() == plain(html)


def test_a_long_name_in_a_line_that_a_note_explains_may_break_at_its_underscores(copy):
    code = 'setting = os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING_2"], gradient_as_bucket_view'
    path = copy.content.parent / "content/topics/averaging/code/mean.py"
    path.write_text(f"{path.read_text()}\n{code}\n")
    copy.edit(
        "topics/averaging/learn.yml",
        "walkthrough:\n",
        f"walkthrough:\n  - code: {json.dumps(code)}\n    says: A setting is read.\n",
    )
    shown = rendering.render(copy.load())[LEARN].split('<ol class="pb-notes">')[1].split("</ol>")[0]
    whole = "TORCH_NCCL_ASYNC_ERROR_HANDLING_2"
    assert whole not in shown
    assert whole.replace("_", "_<wbr>") in shown
    assert "gradient_as_bucket_view" in shown


def test_the_program_is_the_file_and_its_output_is_the_runs(copy, rendered):
    assert "It printed nothing." in rendered[LEARN]
    copy.change_run("tiny_training.averaged", printed=["the mean is <b>1.5</b>"])
    text = rendering.render(copy.load())[LEARN]
    assert "the mean is &lt;b&gt;1.5&lt;/b&gt;" in text
    assert "total" in plain(text.split('class="highlight"')[1].split("</pre>")[0])


# A section with a program.


def test_a_section_shows_a_program_its_notes_and_then_what_it_printed(copy):
    text = "text: The largest layer decides.\n"
    copy.edit("topics/sharding/deep.yml", text, text + PROGRAM)
    copy.change_run("tiny_training.averaged", printed=["the mean is 1.5"])
    page = rendering.render(copy.load())["topics/sharding/deep.md"]
    shown = page[page.index("The largest layer decides") :]
    order = [
        'class="highlight"', '<ol class="pb-notes">', "The gradients of all ranks are added",
        'class="pb-printed"', "the mean is 1.5", "Both ranks apply the same update",
    ]  # fmt: skip
    places = [shown.index(one) for one in order]
    assert places == sorted(places)


def test_a_solution_may_be_a_program_with_its_notes_and_what_it_printed(copy):
    written = """\
solution:
  path: content/topics/sharding/code/halve.py
  object: halve
  title: One layer each
"""
    program = textwrap.dedent(PROGRAM).replace("program:", "solution:")
    copy.edit("topics/sharding/experiment.yml", written, program)
    copy.change_run("tiny_training.averaged", printed=["the mean is 1.5"])
    page = rendering.render(copy.load())["topics/sharding/experiment.md"]
    shown = page[page.index("## Solution") : page.index("## What changed")]
    order = ['<ol class="pb-notes">', "are added", "the mean is 1.5"]
    places = [shown.index(one) for one in order]
    assert places == sorted(places)


def test_a_question_that_tells_what_was_refuted_comes_after_it(copy):
    commit = "commit: who-fits\n"
    copy.edit("topics/sharding/experiment.yml", commit, f"{commit}asks_after_refuted: true\n")
    page = rendering.render(copy.load())["topics/sharding/experiment.md"]
    order = [
        "## Your task", "## A copy does not help", "## Any strategy", 'data-item="who-fits"',
        "## Hints", '<div data-after="who-fits">',
    ]  # fmt: skip
    places = [page.index(one) for one in order]
    assert places == sorted(places)


# Why.


def test_every_decision_cites_the_run_that_shows_it_and_how_its_claim_stands(
    book, rendered, lessons
):
    judged = verdicts.judge(book, Evidence(book))
    table = rendered[WHY].split("pb-decisions")[1].split("</table>")[0]
    html = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:]
    decisions = lessons["why"]["decisions"]
    assert len(html) == len(decisions)
    for row, written in zip(html, decisions, strict=True):
        experiment, run = written["run"].split(".")
        assert f'href="../../evidence/{experiment}.html#run-{experiment}-{run}"' in row
        assert f'id="run-{experiment}-{run}"' in rendered[f"evidence/{experiment}.md"]
        assert plain(row).startswith(written["situation"])
        if "claim" in written:
            words = verdicts.WORDS[judged[written["claim"]].verdict]
            assert f'.html#claim-{written["claim"]}">{words}</a>' in row
        else:
            assert "#claim-" not in row


def test_a_decision_tells_how_its_run_ended(copy, rendered):
    assert "tiny_memory.halves_budget (completed)" in plain(rendered[WHY])
    copy.edit("topics/averaging/why.yml", "run: tiny_memory.halves_budget",
              "run: tiny_memory.whole_budget")  # fmt: skip
    text = rendering.render(copy.load())[WHY]
    assert "tiny_memory.whole_budget (out of memory)" in plain(text)


def test_a_section_that_asks_first_tells_only_after(rendered, lessons):
    section = lessons["why"]["when_not"][0]
    text = rendered[WHY].split(section["title"])[-1]
    asked = text.index(f'data-item="{section["commit"]}"')
    waits = text.index(f'<div data-after="{section["commit"]}">')
    assert asked < waits < text.index(section["text"]) < text.index("pb-waits")
    assert waits < text.index("<figure") < text.index("pb-waits")


# Try.


def test_a_trial_asks_then_tells_why_and_how_to_measure_it(rendered, lessons):
    parts = rendered[TRY].split("\n## ")[1:]
    trials = lessons["try"]["trials"]
    assert len(parts) == len(trials) + 1
    for text, trial in zip(parts, trials, strict=False):
        item = trial["item"]
        order = [
            f'data-item="{item}"',
            f'<details class="pb-details pb-reveal" data-after="{item}">',
            f'python <span class="pb-keep">-m</span> runners try {trial["run"]}</code>',
            "The output, and what to change</summary>",
            "pb-suggestions",
        ]
        places = [text.index(one) for one in order]
        assert places == sorted(places)
        assert places[-1] < text.index("pb-waits")


def test_each_suggestion_is_a_command_with_its_settings(rendered, lessons):
    for trial in lessons["try"]["trials"]:
        for suggestion in trial["suggestions"]:
            changed = " ".join(f"--set {key}={value}" for key, value in suggestion["set"].items())
            said = f".venv/bin/python -m runners try {trial['run']} {changed}</code>"
            assert said in re.sub(r"<wbr>|</?span[^>]*>", "", rendered[TRY])


# Cost.


def test_each_cost_stands_beside_what_its_run_measured_with_the_difference(rendered, runs):
    whole = runs["tiny_memory.whole"]
    formula, peak = 2 * whole["model"]["bytes"], whole["ranks"][0]["memory"]["peak_bytes"]
    row = next(row for row in rows(rendered[COST]) if row[0].startswith("Peak of the whole"))
    assert row[2:] == ["156 KiB", "160 KiB", "−2.44%"]
    assert [round(formula / 1024), round(peak / 1024)] == [156, 160]
    assert round((formula / peak - 1) * 100, 2) == -2.44


def test_a_cost_whose_formula_is_right_is_off_by_nothing(rendered):
    row = next(row for row in rows(rendered[COST]) if row[0].startswith("Passed to"))
    assert row[2:] == ["144 B", "144 B", "0%"]


def test_a_formula_that_is_a_bound_has_its_relation_and_its_verdict(copy):
    copy.edit("claims/tiny_memory.yml", "relation: equals", "relation: at_least")
    row = next(
        row for row in rows(rendering.render(copy.load())[COST]) if row[0].startswith("Peak")
    )
    assert row[2:] == ["≥ 156 KiB", "160 KiB", "−2.44% bound, holds"]


def test_a_law_of_a_row_that_compares_bytes_with_seconds_is_refused_once(copy):
    copy.edit(
        "claims/tiny_training.yml", "predicted: run.model.bytes\n",
        "predicted: run.timing.wall_seconds\n",
    )  # fmt: skip
    found = copy.errors()
    assert len(found) == 1
    assert "seconds and bytes cannot be added or compared" in found[0]


def test_a_row_shows_the_formula_that_its_law_prints(rendered):
    printed = {row[0]: row[1] for row in rows(rendered[COST])}
    (said,) = (said for what, said in printed.items() if what.startswith("Passed to"))
    assert said == "bytes of all_reduce = model bytes"


def test_a_formula_that_returns_in_a_table_is_explained_once(copy):
    law = "law: averaged-bytes@tiny_training.averaged\n"
    reason = "        formula: '`M` in fp32'\n        because: It is short.\n"
    row = f"{law}{reason}      - what: Passed again\n        {law}{reason}"
    copy.edit("topics/averaging/cost.yml", law, row)
    printed = {row[0]: row[1] for row in rows(rendering.render(copy.load())[COST])}
    said = [said for what, said in printed.items() if what.startswith("Passed")]
    assert said == ["M in fp32", "M"]


def test_another_formula_than_the_laws_needs_a_reason(copy):
    copy.edit(
        "topics/averaging/cost.yml", "law: whole-peak", "law: whole-peak\n        because: So"
    )
    (error,) = copy.errors()
    assert "give formula and because together" in error


def test_the_laws_of_a_tables_rows_back_it_and_then_the_claims_that_it_adds(book):
    lesson = next(topic for topic in book.topics if topic.id == "averaging").lessons["cost"].model
    assert lesson.tables[0].backed_by == ["whole-peak", "part-peak", "whole-needs-more"]


def test_a_law_on_a_run_that_this_machine_skipped_still_names_the_run(copy):
    copy.change_run("tiny_memory.halves", status="skipped", reason="no second device", ranks=[])
    book = copy.load()
    found = law_sides.on_run(book.claims["part-peak"], Evidence(book))
    assert (found.run, found.measured) == ("tiny_memory.halves", None)


def test_the_calculator_stands_as_a_form_and_as_a_table(rendered, runs):
    text = rendered[COST].split("data-calculator")[1]
    told = r'<input type="number"[^>]*name="(\w+)" value="([\d.]+)"[^>]*size="([\d.]+)"'
    fields = re.findall(told, text)
    averaged = runs["tiny_training.averaged"]
    measured = {
        "model_bytes": runs["tiny_memory.whole"]["model"]["bytes"],
        "copies": runs["tiny_memory.halves"]["world_size"],
        "compute_seconds": averaged["timing"]["ranks"][1]["compute_seconds"],
        "bandwidth": averaged["ranks"][1]["collectives"][0]["bytes"]
        / averaged["timing"]["ranks"][1]["communication_seconds"],
    }
    assert [name for name, _, _ in fields] == list(measured)
    for name, value, size in fields:
        assert float(value) * float(size) == pytest.approx(measured[name], rel=1e-5)
    table = rows(text)
    start = next(row for row in table if row[0] == "Peak of a rank")
    expected = units.printed(measured["model_bytes"] * measured["copies"], units.BYTES, AS_RULED)
    assert start[2] == expected.replace("\u00a0", " ")
    assert start[3].startswith("2 runs; largest error −2.44%, in tiny_memory.whole")


def test_the_top_leads_to_the_calculator_whose_fields_stand_before_its_afterword(rendered):
    (anchor,) = re.findall(r'<a href="#([^"]+)">With your own numbers', rendered[COST])
    assert anchors(rendered[COST].encode())["A calculator"] == anchor
    before, rest = rendered[COST].split("data-calculator")
    form, after = rest.split("</form>", 1)
    assert "Set a model and its copies." in before
    afterword = "The copies are those that a rank holds."
    assert afterword not in before + form
    assert after.index(afterword) < after.index("<table")


def test_labels_of_fields_and_results_lead_to_them(rendered):
    text = rendered[COST].split("data-calculator")[1].split("</form>")[0]
    named = re.findall(r'<(?:input type="number"[^>]*|output) id="([^"]+)"', text)
    ids = set(re.findall(r' id="([^"]+)"', text))
    labels = re.findall(r'<label for="([^"]+)"', text)
    assert set(labels) <= ids
    assert len(labels) == len(set(labels)) == 6
    related = re.findall(r'aria-(?:labelledby|describedby)="([^"]+)"', text)
    assert {one for several in related for one in several.split()} <= ids
    assert named


# The worked example.


def test_a_worked_example_goes_step_by_step_to_its_takeaway(rendered):
    assert headings(rendered[WORKED]) == [
        "1 What one copy needs", "2 What fits", "Check yourself", "Takeaway",
    ]  # fmt: skip
    before = re.findall(r"^(.*)\n## ", rendered[WORKED], re.MULTILINE)
    assert before == [""] * len(before)  # else Markdown takes a heading for more of the HTML above


def test_the_table_of_a_step_holds_values_that_open(rendered, runs):
    found = {row[0]: row[1:] for row in rows(rendered[WORKED]) if row}
    for name, run in (("whole", "whole"), ("in parts", "halves")):
        memory = runs[f"tiny_memory.{run}"]["ranks"][0]["memory"]
        told = [memory["peak_bytes"], memory["largest"]["parameters_bytes"]]
        assert found[name] == [
            str(units.printed(one, units.BYTES, AS_RULED)).replace("\u00a0", " ") for one in told
        ]
    assert 'href="../../evidence/tiny_memory.html#halves"' in rendered[WORKED]


def test_what_answers_the_question_of_a_step_waits_for_it(rendered, lessons):
    text, asked = rendered[WORKED], lessons["worked"]["steps"][1]["commit"]
    assert text.index(f'data-item="{asked}"') < text.index(f'data-after="{asked}"')


def test_a_row_of_a_worked_table_has_a_cell_for_each_column(copy):
    copy.edit("topics/averaging/worked.yml", "columns: [peak, parameters]", "columns: [peak]")
    assert copy.errors() == [
        "content/topics/averaging/worked.yml:9:7: table: each row needs as many cells as there are "
        "columns"
    ]


# What answers a page's first question.


def test_a_table_of_cost_that_answers_the_first_question_waits_for_it(copy, lessons, rendered):
    title = lessons["cost"]["tables"][0]["title"]
    copy.edit(
        "topics/averaging/cost.yml", f"title: {title}\n", f"title: {title}\n    waits: true\n"
    )
    sections = [
        text.split(f"## {title}")[1].split("\n## ")[0]
        for text in (rendered[COST], rendering.render(copy.load())[COST])
    ]
    assert ['data-after="is-it-faster"' in one for one in sections] == [False, True]
    assert sections[1].index("data-after") < sections[1].index("<table")
    assert sections[1].index("</table>") < sections[1].index("pb-waits")


def test_parts_of_a_trace_that_answer_the_first_question_wait_for_it(copy):
    commit = "commit: is-it-equal\n"
    copy.edit("topics/averaging/trace.yml", commit, f"{commit}waits: [stages, insight]\n")
    text = rendering.render(copy.load())["topics/averaging/trace.md"]
    assert text.count('data-after="is-it-equal"') == 2
    assert '<div class="pb-insight" data-after="is-it-equal">' in text
    assert text.index('<div data-after="is-it-equal">') < text.index("data-stepper")


def test_the_verdicts_of_a_trace_wait_for_the_question_of_its_timeline(copy):
    timeline = (
        "timeline:\n  title: Rank by rank\n  commit: is-it-faster\n  text: Both wait.\nmore:\n"
    )
    copy.edit("topics/averaging/trace.yml", "more:\n", timeline)
    text = rendering.render(copy.load())["topics/averaging/trace.md"]
    verdicts = text.split("## What holds here")[1].split("## Questions")[0]
    waits, table, line = (
        verdicts.index(one) for one in ('data-after="is-it-faster"', "<table", "#item-is-it-faster")
    )
    assert waits < table < line


def test_stages_wait_for_the_question_right_above_them_and_then_for_the_first(copy):
    head, flow = "commit: is-it-equal\ndata_flow:\n", "data_flow:\n  commit: without-averaging\n"
    copy.edit("topics/averaging/trace.yml", head, f"commit: is-it-equal\nwaits: [stages]\n{flow}")
    text = rendering.render(copy.load())["topics/averaging/trace.md"]
    places = [f'<div data-after="{one}">' for one in ("without-averaging", "is-it-equal")]
    lines = [f'<a href="#item-{one}">“' for one in ("is-it-equal", "without-averaging")]
    found = [text.index(one) for one in (*places, "data-stepper", *lines)]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("mode", "written", "waiting"),
    [
        ("trace", "commit: is-it-equal\n", "waits: [stages]\n"),
        ("cost", "commit: is-it-faster\ntables:\n  - ", "tables:\n  - waits: true\n    "),
    ],
)
def test_nothing_may_wait_where_a_page_asks_no_first_question(copy, mode, written, waiting):
    copy.edit(f"topics/averaging/{mode}.yml", written, waiting)
    with pytest.raises(ContentErrors, match="waits: needs commit:"):
        copy.load()


@pytest.mark.parametrize(
    ("waits", "asked", "said"),
    [
        ("[afterword]", "", "waits: names the afterword, and training: has none"),
        ("[prediction]", "  commit: is-it-faster\n", "names prediction, which waits for a commit:"),
        ("[stages, stages]", "", "waits: names a part twice"),
    ],
)
def test_a_part_that_cannot_wait_for_the_first_question_is_refused(copy, waits, asked, said):
    path = "topics/averaging/trace.yml"
    copy.edit(path, "prediction:\n", f"prediction:\n{asked}")
    assert copy.errors() == []
    copy.edit(path, "commit: is-it-equal\n", f"commit: is-it-equal\nwaits: {waits}\n")
    with pytest.raises(ContentErrors, match=said):
        copy.load()


def test_a_trace_shows_no_time_of_a_pass_that_was_slowed_to_record_tensors(copy):
    page = rendering.render(copy.load())["topics/averaging/trace.md"]
    flow, _, steps = page.rpartition("## Prediction")
    recorded = flow.partition("## Training")[0] + steps.partition("</table>")[0]
    assert "<dt>Operation</dt>" in recorded
    assert ">Operation</th>" in recorded
    assert not re.search(r"Time<|\d (s|ms|µs)<", recorded)
