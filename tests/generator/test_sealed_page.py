"""The page of sealed forecasts, before and after an accelerator has run them (made-up outcomes)."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import yaml

from generator.__main__ import main
from generator.content.book import load
from generator.pages.press import Press
from runners.planning.sealed import PATH, write_outcomes
from runners.traces.sealed_forecasts import read_forecasts, seal_path
from tests.sealed_outcomes import WORDS, outcomes_of

PAGE = "plan/sealed.md"
ROW = re.compile(r'<tr id="(\w+)">(.*?)</tr>', re.DOTALL)
RED = "pb-does-not-hold"


@pytest.fixture
def sealed(copy):
    """The frozen book with the real forecasts."""
    for path in (PATH, seal_path(PATH)):
        shutil.copy2(path, copy.content)
    copy.append("plan.yml", WORDS)
    return copy


@pytest.fixture(scope="module")
def forecasts():
    return read_forecasts(PATH)


def printed(copy, *outcomes):
    for one in outcomes:
        write_outcomes(one, copy.content / PATH.name)
    return Press().printed(copy.load())[PAGE].decode()


def texts(html):
    """The text of each row by its id, without tags."""
    return {name: " ".join(re.sub(r"<[^>]+>", " ", row).split()) for name, row in ROW.findall(html)}


def test_before_an_outcome_every_forecast_stands_there_and_one_sentence_says_that_none_was_run(
    sealed, forecasts
):
    page = printed(sealed)
    rows = texts(page)
    simulated = [one for one in forecasts.suite if one.reason is None]
    assert len(rows) == len(forecasts.near_limit) + len(simulated)
    for one in forecasts.near_limit:
        row = next(text for name, text in rows.items() if name.endswith(one.id.split("-")[-1])
                   and re.sub(r"\W", "_", one.id) in name)  # fmt: skip
        verdict = "completes" if one.fits else "runs out of memory"
        assert row.endswith(f" GiB {verdict}")
    for one in forecasts.suite:
        assert (f"{one.experiment}_{one.run}" in rows) == (one.reason is None)
    assert page.count("No accelerator has run these forecasts yet") == 1
    assert "Outcome" not in page
    assert RED not in page
    assert "pb-value pb-measured" not in page
    assert re.sub("<wbr>", "", page).count(seal_path(PATH).read_text().split()[0]) == 1


def test_the_book_says_in_words_why_each_run_without_a_forecast_has_none(forecasts):
    text = (PATH.parent / "plan.yml").read_text(encoding="utf-8")
    words = yaml.safe_load(text)["sealed"]["reasons"]
    raised = re.compile(r"\w+(Error|Exception): ")
    for reason in {one.reason for one in forecasts.suite if raised.match(one.reason or "")}:
        assert [begins for begins in words if reason.startswith(begins)], reason
    for begins in words:
        assert any(one.reason and one.reason.startswith(begins) for one in forecasts.suite), begins


def test_a_reason_in_words_stands_before_what_was_recorded(sealed, forecasts):
    recorded = next(one.reason for one in forecasts.suite if one.reason)
    sealed.append("plan.yml", f"  reasons: {{{json.dumps(recorded[:12])}: It reads a file.}}\n")
    assert re.search(rf"It reads a file\. <span[^>]*>{recorded[:12]}", printed(sealed))


def test_outcomes_as_forecast_have_no_error_no_miss_and_no_wrong_verdict(sealed, forecasts):
    page = printed(sealed, outcomes_of(forecasts))
    count = len(forecasts.near_limit)
    assert "No accelerator has run" not in page
    assert RED not in page
    said = re.sub(r"<[^>]+>", "", page)
    assert f"Verdicts as forecast: {count} of {count}." in said
    assert "Each miss" not in page
    assert texts(page)["ddp_ddp"].endswith("equal equal")
    assert texts(page)["ddp_single"].endswith("equal –")  # a rank without peers sends nothing


def test_a_miss_and_a_wrong_verdict_are_red_and_named_and_lead_to_their_rows(sealed, forecasts):
    fitting = [one for one in forecasts.near_limit if one.fits]
    outcomes = outcomes_of(forecasts, allocated_bytes=round(fitting[0].allocated_bytes / 1.25))
    near = [
        one.model_copy(update={"fits": False, "phase": "backward"})
        if one.id == fitting[1].id
        else one
        for one in outcomes.near_limit
    ]
    page = printed(sealed, outcomes.model_copy(update={"near_limit": near}))
    missed, wrong = (f"near_{re.sub(r'[^a-z0-9]', '_', one.id)}" for one in fitting[:2])
    rows = texts(page)
    assert "25.0%" in rows[missed]
    assert "runs out of memory, the forecast was wrong; out of memory in backward" in rows[wrong]
    links = re.findall(rf'<a (?:class="{RED}" )?href="#(near_\w+)"', page)
    assert sorted(links) == sorted([missed, wrong])
    said = re.sub(r"<[^>]+>", "", page)
    count = len(forecasts.near_limit)
    assert f"Verdicts as forecast: {count - 1} of {count}." in said


def test_what_a_machine_did_not_run_is_said_and_machines_stand_side_by_side(sealed, forecasts):
    all_of_it = outcomes_of(forecasts, "large")
    part = outcomes_of(forecasts, "small").model_copy(
        update={"near_limit": all_of_it.near_limit[:4], "suite": []}
    )
    page = printed(sealed, all_of_it, part)
    assert page.count("not run there") == len(forecasts.near_limit) - 4
    assert page.index('id="outcomes-large"') < page.index('id="outcomes-small"')
    sources = json.loads(re.search(r'id="pb-sources"[^>]*>(.*?)</script>', page)[1])
    assert {one[1] for one in sources["values"]} == {0, 2, 3}  # all outcomes are equal


def test_an_outcome_opens_to_the_file_and_the_device_that_it_comes_from(sealed, forecasts):
    outcomes = outcomes_of(forecasts, allocated_bytes=1)
    page = printed(sealed, outcomes)
    sources = json.loads(re.search(r'id="pb-sources"[^>]*>(.*?)</script>', page)[1])
    (measured,) = (one for one in sources["values"] if one[1] == 1)
    recorded = "1 January 2030, 00:00:00 UTC"
    assert measured[2] == f"sealed_outcomes/some.json: made up, {recorded}, torch 2.13.0"
    assert 'href="#outcomes-some"' in page


def test_a_page_with_the_outcomes_of_two_machines_stays_within_the_budget(sealed, forecasts):
    off = [
        one.model_copy(update={"peak_bytes": one.peak_bytes and one.peak_bytes + 1})
        for one in outcomes_of(forecasts).suite
    ]
    machines = [
        outcomes_of(forecasts, name).model_copy(update={"suite": off}) for name in ("one", "two")
    ]
    page = printed(sealed, *machines)
    assert len(re.findall(r"<[a-z]", page)) < 7_500


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (PATH.name, lambda text: text[:-40], "is not the file that"),
        (PATH.name, lambda text: text.replace("true", "false", 1), "is not the file that"),
        (seal_path(PATH).name, lambda text: "0" + text[1:] if text[0] != "0" else "1" + text[1:],
         "is not the file that"),
    ],
)  # fmt: skip
def test_a_cut_or_edited_file_is_one_located_line_and_exit_code_2(
    sealed, file, change, said, capsys
):
    path = sealed.content / file
    path.write_text(change(path.read_text()))
    assert main(["check", "--content", str(sealed.content)]) == 2
    lines = capsys.readouterr().err.splitlines()
    located = [line for line in lines if PATH.name in line]
    assert len(located) == 1
    assert said in located[0]
    assert located[0].startswith(f"content/{PATH.name}")


def test_outcomes_of_other_forecasts_are_one_located_line_and_exit_code_2(
    sealed, forecasts, capsys
):
    outcomes = outcomes_of(forecasts).model_copy(update={"forecasts_sha256": "0" * 64})
    write_outcomes(outcomes, sealed.content / PATH.name)
    assert main(["check", "--content", str(sealed.content)]) == 2
    (line,) = (one for one in capsys.readouterr().err.splitlines() if "sealed" in one)
    assert line.startswith("content/sealed_outcomes/some.json")
    assert "outcomes of other forecasts" in line


def test_a_published_book_shows_no_outcomes_of_a_machine_that_is_not_committed(sealed, forecasts):
    write_outcomes(outcomes_of(forecasts), sealed.content / PATH.name)
    book = load(sealed.content, is_stale=lambda _: False, only={"reference-frozen"})
    assert book.traces["plan_sealed"].sealed.outcomes == ()
