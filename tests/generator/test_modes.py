"""Learn, Why, Try, Cost and the worked example, against the lesson and the trace behind each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from generator.content.errors import ContentErrors
from generator.evidence import law_sides, units, verdicts
from generator.evidence.evaluation import Evidence
from generator.evidence.units import AS_RULED
from generator.pages import rendering

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


# Learn.


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


def test_the_program_is_the_file_and_its_output_is_the_runs(copy, rendered):
    assert "It printed nothing." in rendered[LEARN]
    copy.change_run("tiny_training.averaged", printed=["the mean is <b>1.5</b>"])
    text = rendering.render(copy.load())[LEARN]
    assert "the mean is &lt;b&gt;1.5&lt;/b&gt;" in text
    assert "total" in plain(text.split('class="highlight"')[1].split("</pre>")[0])


# A section with a program.


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


# Cost.


def test_each_cost_stands_beside_what_its_run_measured_with_the_difference(rendered, runs):
    whole = runs["tiny_memory.whole"]
    formula, peak = 2 * whole["model"]["bytes"], whole["ranks"][0]["memory"]["peak_bytes"]
    row = next(row for row in rows(rendered[COST]) if row[0].startswith("Peak of the whole"))
    assert row[2:] == ["156 KiB", "160 KiB", "−2.44%"]
    assert [round(formula / 1024), round(peak / 1024)] == [156, 160]
    assert round((formula / peak - 1) * 100, 2) == -2.44


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


def test_another_formula_than_the_laws_needs_a_reason(copy):
    copy.edit(
        "topics/averaging/cost.yml", "law: whole-peak", "law: whole-peak\n        because: So"
    )
    (error,) = copy.errors()
    assert "give formula and because together" in error


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


# The worked example.


def test_the_table_of_a_step_holds_values_that_open(rendered, runs):
    found = {row[0]: row[1:] for row in rows(rendered[WORKED]) if row}
    for name, run in (("whole", "whole"), ("in parts", "halves")):
        memory = runs[f"tiny_memory.{run}"]["ranks"][0]["memory"]
        told = [memory["peak_bytes"], memory["largest"]["parameters_bytes"]]
        assert found[name] == [
            str(units.printed(one, units.BYTES, AS_RULED)).replace("\u00a0", " ") for one in told
        ]
    assert 'href="../../evidence/tiny_memory.html#halves"' in rendered[WORKED]


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
