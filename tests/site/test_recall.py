"""Recall in a browser whose clock the test moves: what comes back when."""

import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fsrs import Card, Rating, Scheduler

from tests.site.asking import BY_ID, RECALL, RIGHT, Asking, field_of, kept

pytestmark = pytest.mark.browser

EVENING = "2026-03-02T20:00:00+01:00"  # in Vienna, wherever the test runs
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


SHOWN = """() => [...document.querySelectorAll("[data-recall] .pb-question")]
    .filter(one => one.checkVisibility()).map(one => one.id.slice("item-".length))"""
PRESS = """names => {
    const buttons = [...document.querySelectorAll("[data-recall] button")];
    const one = buttons.find(one => one.checkVisibility() && names.includes(one.innerText.trim()));
    one.focus();
    one.click();
}"""


def _shown(page: Any) -> str | None:
    """The item in view, of which there is at most one."""
    seen: list[str] = page.evaluate(SHOWN)
    assert len(seen) < 2
    return seen[0] if seen else None


def _on(page: Any) -> None:
    """Go on to the next question, or end the sitting."""
    page.evaluate(PRESS, ["Next question", "Finish"])


def _press(page: Any, name: str) -> None:
    page.locator("[data-recall]").get_by_role("button", name=name).click()


def _show(page: Any) -> None:
    page.evaluate(PRESS, ["Show the answer"])


def _sit(page: Any, name: str) -> None:
    """Begin a sitting, which loads the variants of the topic first."""
    _press(page, name)
    page.locator("[data-recall-said]", has_text="1 of ").wait_for()


def _answer(page: Any, answers: dict[str, tuple[Any, str | None]]) -> list[str]:
    """Work through a sitting; the items in the order in which they came."""
    came = []
    while name := _shown(page):
        came.append(name)
        assert len(came) < 40
        answer, sure = answers.get(name, (BY_ID[name].right, "sure"))
        item = Asking(page, name)
        if "one more attempt" in item.give(answer, sure):
            item.give(BY_ID[name].wrong_too)
        _on(page)
    return came


def _has(page: Any, name: str) -> bool:
    return bool(page.get_by_role("button", name=name).count())


def _due(page: Any) -> dict[str, float]:
    """For each answered item, days from the start of today (of the page's clock) to its return."""
    today = page.evaluate("new Date().setHours(0, 0, 0, 0)")
    return {name: (record["due"] - today) / DAY for name, record in kept(page).items()}


AGAIN, HARD, GOOD, EASY = 1, 2, 3, 4


def _card(*answers: tuple[float, int], card: Card | None = None) -> Card:
    """What the published package makes of answers, each a day and a rating."""
    scheduler = Scheduler(
        learning_steps=(), relearning_steps=(), maximum_interval=365, enable_fuzzing=False
    )
    card = card or Card()
    for day, rating in answers:
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)
        card, _ = scheduler.review_card(card, Rating(rating), at)
    return card


def _days(*answers: tuple[float, int], card: Card | None = None) -> int:
    """After how many days the published package asks again."""
    found = _card(*answers, card=card)
    assert found.last_review is not None
    return (found.due - found.last_review).days


def test_new_questions_are_asked_one_at_a_time_and_come_back_by_how_sure_one_was(page):
    assert _said(page) == "Nothing is due."
    assert _shown(page) is None
    _sit(page, f"Answer new questions ({len(ASKED)} of {len(ASKED)})")
    assert _said(page) == f"1 of {len(ASKED)}"
    assert "pb-question" in page.evaluate("document.activeElement.className")
    wrong = {name: BY_ID[name].wrong for name in ASKED}
    answers = {
        "how-many-bytes": (0, "sure"),
        "which-hold": ([0, 1], None),
        "how-many-parameters": ("20000", "fairly sure"),
        "what-peak": ("160", "a guess"),  # right by luck: due again at once
        "who-needs-most": (wrong["who-needs-most"], "sure"),  # wrong: due again at once
        "what-belongs": (wrong["what-belongs"], "sure"),
        "where-is-the-fault": (wrong["where-is-the-fault"], None),
    }
    assert _answer(page, answers) == ASKED
    said = "Correct at the first attempt: 6 of 9. 4 due now. The next comes in 2 days."
    assert _said(page) == said
    _press(page, "Retake what was wrong (3 of 3)")
    again = ["who-needs-most", "what-belongs", "where-is-the-fault"]
    assert sorted(_answer(page, answers)) == sorted(again)
    assert "Correct at the first attempt: 0 of 3. 1 due now." in _said(page)
    _press(page, "Start with what is due (1 of 1)")
    assert _answer(page, answers) == ["what-peak"]
    days = {name: round(due) for name, due in _due(page).items()}
    missed = _days((0, AGAIN), (0, AGAIN))
    assert days == dict.fromkeys(ASKED, _days((0, EASY))) | {
        "which-hold": _days((0, GOOD)),
        "how-many-parameters": _days((0, GOOD)),
        "what-peak": _days((0, HARD), (0, HARD)),
        "who-needs-most": missed,
        "what-belongs": missed,
        "where-is-the-fault": missed,
    }
    assert sorted(set(days.values())) == [1, 2, 8]
    said = "Correct at the first attempt: 1 of 1. Nothing is due. The next comes tomorrow."
    assert _said(page) == said

    # The next morning, ten hours later, is another day.
    page.clock.set_fixed_time(datetime.fromisoformat("2026-03-03T06:00:00+01:00"))
    page.reload()
    due = [name for name, num in days.items() if num == 1]
    assert _said(page) == f"{len(due)} due now. The next comes tomorrow."
    assert not _has(page, "Answer new questions")
    _press(page, "Start with what is due")
    right = {name: (BY_ID[name].right, "fairly sure") for name in ASKED}
    assert sorted(_answer(page, right)) == sorted(due)
    then = {name: round(num) for name, num in _due(page).items()}
    assert then["what-belongs"] == _days((0, AGAIN), (0, AGAIN), (1, GOOD))


def test_a_sitting_has_ten_questions_and_fits_ten_screens(built_site, open_page):
    screen = 900
    recall = built_site / "topics" / "pipeline-parallelism" / "recall.html"
    page = open_page(recall, viewport={"width": 1280, "height": screen})
    _sit(page, "Answer new questions (10 of ")
    heights = []
    while name := _shown(page):
        box = page.locator(f"#item-{name}")
        assert page.locator("[data-recall-said]").bounding_box()["y"] > 0
        check = box.get_by_role("button", name="Check", exact=True).bounding_box()
        assert check["y"] + check["height"] <= screen, name
        box.get_by_role("button", name="Show the answer").click()
        heights.append(box.bounding_box()["height"])
        _on(page)
    assert len(heights) == 10
    assert 0 < page.locator("[data-recall-said]").bounding_box()["y"] < screen
    assert sum(heights) <= 10 * screen
    assert _has(page, "Retake what was wrong")


def test_what_was_wrong_is_retaken_until_it_is_correct_at_the_first_attempt(page):
    _sit(page, "Answer new questions")
    _answer(page, {"how-many-bytes": (1, None)})
    for answer, is_left in ((1, True), (0, False)):
        _press(page, "Retake what was wrong (1 of 1)")
        assert _answer(page, {"how-many-bytes": (answer, None)}) == ["how-many-bytes"]
        assert _has(page, "Retake what was wrong") == is_left


def test_the_schedule_is_that_of_the_published_package_on_random_histories(page):
    draw = random.Random(12)
    histories = [
        [(draw.choice((0, 0, 1, 2, 5, 13, 40, 200)), draw.randint(1, 4)) for _ in range(12)]
        for _ in range(200)
    ]
    ours = page.evaluate(
        """histories => histories.map(history => {
            const { answered, interval } = window.proofbook.fsrs;
            let memory = null;
            return history.map(([days, rating]) => {
                memory = answered(memory, rating, days);
                return [memory.stability, memory.difficulty, interval(memory)];
            });
        })""",
        histories,
    )
    for history, found in zip(histories, ours, strict=True):
        card, day = None, 0
        for (days, rating), (stability, difficulty, interval) in zip(history, found, strict=True):
            day += days
            card = _card((day, rating), card=card)
            assert stability == pytest.approx(card.stability, rel=1e-9)
            assert difficulty == pytest.approx(card.difficulty, rel=1e-9)
            assert interval == (card.due - card.last_review).days


def test_a_question_comes_back_on_other_runs_in_turn_or_with_other_numbers(page, frozen_site):
    recall = (frozen_site / "topics" / "averaging" / "recall.html").as_uri()
    page.goto(recall)
    _sit(page, "Answer new questions")
    day, drawn = datetime.fromisoformat(EVENING), {"draw-the-copy": [], "draw-the-peak": []}
    for sitting, (suffix, ranks, peak, label) in enumerate((
        ("", 2, "82", "question"),
        ("-variant-1", 1, "160", "the same question about another case"),
        ("", 2, "82", "once more"),
    )):  # fmt: skip
        while shown := _shown(page):
            box = page.locator(f"#item-{shown}")
            name = box.locator("form").get_attribute("data-item")
            if name not in ("say-the-peak", *drawn):
                _show(page)
                _on(page)
                continue
            stem = box.locator(".pb-stem").inner_text()
            numbers = re.findall(r"\d[\d,]*", stem)
            number = int(numbers[0].replace(",", ""))
            if name == "say-the-peak":
                assert shown == f"say-the-peak{suffix}"
                assert f"trains on {ranks} ranks." in stem
                lead = box.locator(".pb-eyebrow").inner_text().lower().partition(" · ")[0]
                assert lead == label
                field_of(box).fill(peak)
            elif name == "draw-the-peak":
                field_of(box).fill(str(2 * number))
            else:  # of fp32 parameters and their gradients
                said = re.compile(rf"^\s*{8 * number / 1024:.3g}\sKiB\s*$")
                box.locator("label").filter(has_text=said).click()
            box.get_by_role("button", name="Check", exact=True).click()
            assert RIGHT in box.inner_text()
            variant = kept(page)[name]["attempts"][-1].get("variant", 0)
            assert variant == (sitting if name in drawn else bool(suffix))
            drawn.get(name, []).append((*numbers,))
            _on(page)
        day += timedelta(days=400)
        page.clock.set_fixed_time(day)
        page.goto(recall)
        _sit(page, "Start with what is due")
    assert [len({*numbers}) for numbers in drawn.values()] == [3, 3]


def test_a_missed_question_that_refers_to_its_page_comes_back_there(built_site, open_page):
    lesson, recall = (built_site / f"topics/ddp/{mode}.html" for mode in ("learn", "recall"))
    page = open_page("about:blank", timezone_id="Europe/Vienna")
    page.clock.install(time=EVENING)
    page.goto(recall.as_uri())
    elsewhere = page.locator("[data-recall-elsewhere]")
    assert not elsewhere.is_visible()
    page.goto(f"{lesson.as_uri()}#item-ddp-learn-equal")  # which waits for the guess otherwise
    box = page.locator("#item-ddp-learn-equal")
    for wrong in (0, 2):  # what averages weights is one of them
        box.locator(f"input[value='{wrong}']").check()
        box.get_by_role("button", name="Check", exact=True).click()
    assert kept(page)["ddp-learn-equal"]["attempts"][-1]["is_right"] is False
    page.clock.set_fixed_time(datetime.fromisoformat(EVENING) + timedelta(days=7))
    page.goto((built_site / "topics/index.html").as_uri())
    assert "1 due" in page.locator("main").inner_text()
    page.goto(recall.as_uri())
    assert _said(page).startswith("Due on other pages, as listed below: 1.")
    (link,) = elsewhere.locator("li").filter(visible=True).all()
    link.get_by_role("link").click()
    page.wait_for_url("**/learn.html#item-ddp-learn-equal")
    assert not box.get_by_role("button", name="Answer again").is_visible()  # it is asked anew
    box.locator("input[value='1']").check()
    box.get_by_role("button", name="Check", exact=True).click()
    page.goto(recall.as_uri())
    assert _said(page).startswith("Nothing is due.")
    assert not elsewhere.is_visible()
