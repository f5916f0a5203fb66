"""Recall in a browser whose clock the test moves: what comes back when; what `sure` was worth."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.site.asking import BY_ID, CHALLENGE, RECALL, RIGHT, Asking, kept

pytestmark = pytest.mark.browser

EVENING = "2026-03-02T20:00:00"
DAY = 24 * 60 * 60 * 1000
# The frozen recall.yml leaves out `how-slow`.
ASKED = [name for name in BY_ID if name != "how-slow"]


@pytest.fixture
def page(frozen_site, open_page):
    """The Recall page in the evening of a Monday, in a zone that changes to summer time soon."""
    opened = open_page("about:blank", timezone_id="Europe/Vienna")
    opened.clock.install(time=EVENING)
    opened.goto((frozen_site / RECALL).as_uri())
    return opened


def _said(page: Any) -> str:
    return " ".join(page.locator("[data-recall-said]").inner_text().split())


def _shown(page: Any) -> str | None:
    """The item in view, of which there is at most one."""
    (*others,) = page.locator("[data-recall] .pb-question").filter(visible=True).all()
    assert len(others) < 2
    return others[0].get_attribute("id").removeprefix("item-") if others else None


def _press(page: Any, name: str) -> None:
    page.locator("[data-recall]").get_by_role("button", name=name).click()


def _answer(page: Any, answers: dict[str, tuple[Any, str | None]]) -> list[str]:
    """Work through a sitting; the items in the order in which they came."""
    came = []
    while name := _shown(page):
        came.append(name)
        assert len(came) < 40
        answer, sure = answers.get(name, (BY_ID[name].right, "sure"))
        Asking(page, name).give(answer, sure)
        _press(page, "Next question" if _has(page, "Next question") else "Finish")
    return came


def _has(page: Any, name: str) -> bool:
    return bool(page.get_by_role("button", name=name).count())


def _due(page: Any) -> dict[str, float]:
    """For each answered item, days from the start of today (of the page's clock) to its return."""
    today = page.evaluate("new Date().setHours(0, 0, 0, 0)")
    return {name: (record["due"] - today) / DAY for name, record in kept(page).items()}


def _to_day(page: Any, frozen_site: Any, day: str) -> None:
    page.clock.set_fixed_time(datetime.fromisoformat(day))
    page.goto((frozen_site / RECALL).as_uri())


def test_new_questions_are_asked_one_at_a_time_and_come_back_by_how_sure_one_was(page, frozen_site):
    assert _said(page) == "Nothing is due."
    assert _shown(page) is None
    _press(page, f"Take new ones ({len(ASKED)} of {len(ASKED)})")
    assert _said(page) == f"1 of {len(ASKED)}"
    assert "pb-question" in page.evaluate("document.activeElement.className")
    wrong = {name: BY_ID[name].wrong for name in ASKED}
    answers = {
        "how-many-bytes": (0, "sure"),
        "which-hold": ([0, 1], None),
        "what-peak": ("160", "a guess"),  # right by luck: again in this sitting
        "who-needs-most": (wrong["who-needs-most"], "sure"),  # comes back in a week
        "what-belongs": (wrong["what-belongs"], "fairly sure"),  # again in this sitting
        "where-is-the-fault": (wrong["where-is-the-fault"], None),  # again in this sitting
    }
    came = _answer(page, answers)
    again = ["what-peak", "what-belongs", "where-is-the-fault"]
    assert came == ASKED + again
    days = {name: round(due) for name, due in _due(page).items()}
    assert days == dict.fromkeys(ASKED, 1) | {"who-needs-most": 7}
    assert (
        _said(page) == "That was the last of this sitting. Nothing is due. The next comes tomorrow."
    )

    # The next morning, ten hours later, is another day.
    _to_day(page, frozen_site, "2026-03-03T06:00:00")
    assert _said(page) == f"{len(ASKED) - 1} due now. The next comes in 6 days."
    assert not _has(page, "Take new ones")
    _press(page, "Start with what is due")
    right = {name: (BY_ID[name].right, "fairly sure") for name in ASKED}
    assert sorted(_answer(page, right)) == sorted(set(ASKED) - {"who-needs-most"})
    days = {name: round(due) for name, due in _due(page).items()}
    # what was never got right without luck has its first day still before it
    expected = dict.fromkeys(ASKED, 3) | {"who-needs-most": 6}
    assert days == expected | {"what-belongs": 1, "where-is-the-fault": 1}

    # A week after the first day, the confident error is asked again.
    _to_day(page, frozen_site, "2026-03-09T09:00:00")
    assert f"{len(ASKED)} due now" in _said(page)
    _press(page, "Start with what is due")
    _answer(page, right)
    days = {name: round(due) for name, due in _due(page).items()}
    assert days["who-needs-most"] == 1
    assert days["what-belongs"] == 3
    assert days["how-many-bytes"] == 7


def test_a_question_is_once_more_only_where_it_was_answered(page):
    _press(page, "Take new ones")
    eyebrow = page.locator("[data-recall] .pb-eyebrow").filter(visible=True)
    assert eyebrow.inner_text().lower() == "question"
    _answer(page, {})
    _press(page, "Practise anyway")
    assert eyebrow.inner_text().lower() == "once more"


def test_each_interval_is_longer_than_the_one_before_over_a_change_of_clocks(page, frozen_site):
    found = []
    _press(page, "Take new ones")
    Asking(page, "how-many-bytes").give(0, "sure")
    for _ in range(5):
        due = kept(page)["how-many-bytes"]["due"]
        days = page.evaluate(
            "ms => Math.round((ms - new Date().setHours(0, 0, 0, 0)) / 864e5)", due
        )
        assert page.evaluate("ms => new Date(ms).getHours()", due) == 0
        found.append(days)
        page.clock.set_fixed_time(due / 1000 + 60 * 60 * 9)
        page.goto((frozen_site / RECALL).as_uri())
        _press(page, "Start with what is due")
        assert _shown(page) == "how-many-bytes"
        assert Asking(page, "how-many-bytes").give(0, "sure").startswith(RIGHT)
    assert found == [1, 3, 7, 21, 60]


def test_whoever_practises_early_moves_nothing_by_a_right_answer(page):
    _press(page, "Take new ones")
    _answer(page, {})
    before = _due(page)
    _press(page, f"Practise anyway ({len(ASKED)})")
    name = str(_shown(page))
    assert Asking(page, name).give(BY_ID[name].right, "sure").startswith(RIGHT)
    assert _due(page) == before
    _press(page, "Next question")
    name = str(_shown(page))
    Asking(page, name).give(BY_ID[name].wrong, "fairly sure")
    assert _due(page)[name] < 1 <= before[name]  # due in this sitting


def test_the_coming_days_are_predicted_in_a_table(page, frozen_site):
    assert page.locator("[data-recall-forecast] table").count() == 0
    _press(page, "Take new ones")
    _answer(page, {"how-many-bytes": (1, "sure")})
    rows = page.locator("[data-recall-forecast] tbody tr").all()
    told = {row.locator("th").inner_text(): row.locator("td").first.inner_text() for row in rows}
    assert told == {
        "today": "0", "tomorrow": str(len(ASKED) - 1), "in 2 days": "0", "in 3 days": "0",
        "in 4 days": "0", "in 5 days": "0", "in 6 days": "0", "later": "1",
    }  # fmt: skip
    widths = [row.locator(".pb-bar").evaluate("bar => bar.offsetWidth") for row in rows]
    assert widths[1] > 8 * widths[7] * 0.9 > 0
    assert widths[0] == 0
    page.goto((frozen_site / CHALLENGE).as_uri())
    assert "due" not in page.locator(".pb-modes").inner_text()
    page.clock.set_fixed_time(datetime.fromisoformat("2026-03-04T09:00:00"))
    page.reload()
    link = page.locator(".pb-modes a", has_text="Recall")
    assert f"{len(ASKED) - 1} due" in link.inner_text()


def test_calibration_counts_first_answers_by_how_sure_they_were(page):
    assert page.locator("[data-recall-calibration] table").count() == 0
    _press(page, "Take new ones")
    answers = {
        "how-many-bytes": (0, "sure"),
        "which-hold": ([0], "sure"),
        "what-peak": ("1", "sure"),
        "how-many-parameters": ("20000", "fairly sure"),
        "who-needs-most": ([0, 1, 2], "fairly sure"),
        "what-belongs": ([0, 1, 2], "a guess"),
        "where-is-the-fault": (2, None),
        "what-comes-out": ("20 × 4", "sure"),
        "what-accuracy": ("28", "sure"),
    }
    for _ in ASKED:  # first answers only, whatever comes back
        name = str(_shown(page))
        Asking(page, name).give(*answers[name])
        _press(page, "Next question" if _has(page, "Next question") else "Finish")
    rows = page.locator("[data-recall-calibration] tbody tr").all()
    assert [" ".join(row.inner_text().split()) for row in rows] == [
        "sure 3 of 5 60%",
        "fairly sure 1 of 2 50%",
        "a guess 1 of 1 100%",
    ]
    assert "wrong more often than the word allows" in page.locator("main").inner_text()


def test_without_scripts_recall_holds_every_question_with_its_answer(frozen_site, open_page):
    page = open_page(frozen_site / RECALL, java_script_enabled=False)
    assert "Without JavaScript" in page.locator("main").inner_text()
    for name in ASKED:
        box = page.locator(f"#item-{name}")
        box.locator(".pb-answer > summary").click()
        assert BY_ID[name].why_right in box.inner_text()
    assert not page.locator("[data-recall-controls]").is_visible()
