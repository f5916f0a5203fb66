"""Learn, Cost and Trace, against the lesson and the trace behind each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from generator.pages import rendering

FROZEN = Path(__file__).parents[1] / "book" / "content"
LEARN, COST = "topics/averaging/learn.md", "topics/averaging/cost.md"


@pytest.fixture(scope="module")
def rendered(book):
    return rendering.render(book)


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


def test_the_program_is_the_file_and_its_output_is_the_runs(copy, rendered):
    assert "It printed nothing." in rendered[LEARN]
    copy.change_run("tiny_training.averaged", printed=["the mean is <b>1.5</b>"])
    text = rendering.render(copy.load())[LEARN]
    assert "the mean is &lt;b&gt;1.5&lt;/b&gt;" in text
    assert "total" in plain(text.split('class="highlight"')[1].split("</pre>")[0])


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
