"""What readers tried: shown beside the book's while serving, and nowhere else."""

import json
import re

import pytest

from generator.content.book import load
from generator.pages import rendering
from runners.traces.summary import summary_lines
from tests.recorded import as_recorded

TRY = "topics/averaging/try.md"
RUN = "tiny_training.averaged"


@pytest.fixture
def tries_folder(copy):
    folder = copy.content / "tries"
    folder.mkdir()
    return folder


def keep(copy, name="tiny_training.averaged-1", **changes):
    """A try as `python -m runners try` leaves it: the run alone, with what was changed."""
    document = json.loads(copy.trace("tiny_training").read_text())
    run = document["runs"]["averaged"]
    run["settings"] |= changes.pop("settings", {})
    run |= changes
    as_recorded(run)
    document |= {
        "runs": {"averaged": run}, "machine": "cpu-of-a-reader",
        "recorded_at": "2026-02-03T04:05:06Z",
    }  # fmt: skip
    (copy.content / "tries" / f"{name}.json").write_text(json.dumps(document))
    return run


def served(copy):
    return load(copy.content, None, lambda _: False, with_tries=True)


def own_rows(page):
    """The rows of every table of tries, as plain text, by the trial's title."""
    found = {}
    for part in page.split("\n## ")[1:]:
        title = re.sub(r"<[^>]+>", "", part.splitlines()[0])
        for table in re.findall(
            r'<table class="pb-table pb-own-tries">.*?</table>', part, re.DOTALL
        ):
            body = table.split("<tbody>")[1]
            found[title] = [
                [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", cell)).strip()
                 for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
                for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
            ]  # fmt: skip
    return found


def test_a_try_stands_beside_the_books_value_for_every_trial_of_its_run(copy, tries_folder):
    run = keep(copy, settings={"learning_rate": 0.2})
    run["epochs"][-1]["loss"] = 0.75
    keep(copy, settings={"learning_rate": 0.2}, epochs=run["epochs"], world_size=4)
    found = own_rows(rendering.render(served(copy))[TRY])
    assert len(found) == 3
    loss = found["1 The loss at the end"]
    assert loss == [
        [
            "learning_rate 0.1 → 0.2 world_size 2 → 4",
            "0.7500",
            "1.250",
            "3 February 2026, 04:05:06 UTC cpu-of-a-reader",
        ]
    ]
    assert found["2 The bytes sent"][0][1:3] == ["144 B", "144 B"]


def test_the_value_is_worked_out_with_the_try_in_the_place_of_the_run(copy, tries_folder):
    copy.edit(
        "topics/averaging/try.yml", "value: tiny_training.averaged.epochs[-1].loss",
        "value: tiny_training.averaged.epochs[-1].loss / tiny_training.single.epochs[-1].loss",
    )  # fmt: skip
    run = keep(copy)
    run["epochs"][-1]["loss"] = 2.5
    keep(copy, epochs=run["epochs"])
    assert own_rows(rendering.render(served(copy))[TRY])["1 The loss at the end"][0][1] == "2.00"


def test_a_try_that_measured_no_such_value_says_how_it_ended(copy, tries_folder):
    keep(copy, status="diverged", epochs=[])
    row = own_rows(rendering.render(served(copy))[TRY])["1 The loss at the end"][0]
    assert row[1] == "diverged; this run did not measure the value"


def test_a_build_shows_no_try_and_reads_none(copy, tries_folder, rendered_frozen):
    keep(copy, settings={"learning_rate": 0.2})
    (tries_folder / "broken.json").write_text("{")
    assert copy.load().tries == ()
    assert rendering.render(copy.load())[TRY] == rendered_frozen[TRY]


@pytest.fixture(scope="module")
def rendered_frozen(book):
    return rendering.render(book)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a whole JSON file"),
        ('{"schema_version": 99}', "schema_version: input should be 2"),
    ],
)
def test_a_file_that_is_no_try_is_one_line_and_never_a_lost_page(
    copy, tries_folder, rendered_frozen, text, said
):
    (tries_folder / "odd.json").write_text(text)
    keep(copy, settings={"learning_rate": 0.2})
    book = served(copy)
    (line,) = book.lost_tries
    assert line.startswith("tries/odd.json:")
    assert said in line
    assert "\n" not in line
    rendered = rendering.render(book)
    assert set(rendered) == set(rendered_frozen)
    assert "<code>tries/odd.json:" in rendered[TRY]
    assert own_rows(rendered[TRY])


def test_a_trial_shows_the_very_lines_that_the_command_prints_of_the_books_run(
    book, rendered_frozen
):
    lines = summary_lines(book.run(RUN))
    assert lines
    shown = r'class="pb-printed"><pre[^>]*><code[^>]*>(.*?)</code>'
    printed = re.findall(shown, rendered_frozen[TRY], re.DOTALL)
    assert [text.splitlines() for text in printed] == [lines]  # at the last of its three trials
    last = rendered_frozen[TRY].split("\n## ")[3]
    assert 'class="pb-printed"' in last
