"""Learn, Why, Try, Cost and the worked example, against the lesson and the trace behind each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from generator.content.errors import ContentErrors
from generator.evidence import units
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


def plain(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).replace("\u00a0", " ").strip()


def rows(text):
    """The cells of every row of every table, as plain text."""
    return [
        [plain(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    ]


# Learn.


def test_the_program_is_the_file_and_its_output_is_the_runs(copy, rendered):
    assert "It printed nothing." in rendered[LEARN]
    copy.change_run("tiny_training.averaged", printed=["the mean is <b>1.5</b>"])
    text = rendering.render(copy.load())[LEARN]
    assert "the mean is &lt;b&gt;1.5&lt;/b&gt;" in text
    assert "total" in plain(text.split('class="highlight"')[1].split("</pre>")[0])


# A section with a program.


# Why.


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


def test_a_law_of_a_row_that_compares_bytes_with_seconds_is_refused_once(copy):
    copy.edit(
        "claims/tiny_training.yml", "predicted: run.model.bytes\n",
        "predicted: run.timing.wall_seconds\n",
    )  # fmt: skip
    found = copy.errors()
    assert len(found) == 1
    assert "seconds and bytes cannot be added or compared" in found[0]


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


# What answers a page's first question.


@pytest.mark.parametrize(
    ("waits", "asked", "said"),
    [
        ("[afterword]", "", "waits: names afterword, which this page does not have"),
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
