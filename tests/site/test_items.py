"""Items in a browser: nothing given away, every answer explained, also by keyboard alone."""

import re

import pytest

from tests.site.asking import CHALLENGE, ITEMS, RIGHT, WRONG, Asking, kept
from tests.site.html_reading import read

pytestmark = pytest.mark.browser


@pytest.fixture
def page(frozen_site, open_page):
    return open_page(frozen_site / CHALLENGE)


# The key, the hints and what waits; but for claims, which stand elsewhere too.
WAITING = {"pb-why", "pb-verdict-word", "pb-explains", "pb-hint", "pb-reveal"}
STANDS_ELSEWHERE = {"summary", "code", "pb-backed"}


def test_nothing_of_a_key_is_seen_or_heard_before_an_answer(frozen_site, page):
    explanations = [
        text.strip()
        for text, around in read(frozen_site / CHALLENGE).texts
        if any(tag.classes & WAITING for tag in around)
        and not any({tag.name, *tag.classes} & STANDS_ELSEWHERE for tag in around)
        and len(text.strip()) > 12
    ]
    assert len(explanations) > 40
    heard = page.locator("main").aria_snapshot()
    seen = page.locator("main").inner_text()
    assert "How many bytes does" in heard
    assert "How many bytes does" in seen
    assert [text for text in explanations if text in seen or text in heard] == []
    for one in ITEMS:
        assert not Asking(page, one.id).worked.is_visible()
        # a number in a question opens nothing: where it comes from would tell
        assert page.locator(f"#item-{one.id} .pb-asked :is(label, td, li) .pb-value").count() == 0


def test_every_kind_answered_wrongly_is_explained_without_giving_the_key_away(page):
    for one in ITEMS:
        item = Asking(page, one.id)
        said = item.by_mouse(one.wrong)
        lead = "Not close." if one.kind == "predict" else WRONG
        assert said.startswith(lead), one.id
        # of several, what is said of each ticked option would tell the rest
        assert (one.why_wrong in item.text()) == (one.kind != "several"), one.id
        if one.num_attempts == 2:
            assert "one more attempt" in said, one.id
            assert one.why_right not in item.text(), one.id
            assert not item.worked.is_visible(), one.id
            assert not kept(page)[one.id]["done"]
            assert "You gave this answer already." in item.give(one.wrong), one.id
            assert len(kept(page)[one.id]["attempts"]) == 1
            assert item.give(one.wrong_too).startswith(WRONG), one.id
        assert one.why_right in item.text(), one.id
        assert item.worked.is_visible(), one.id
        record = kept(page)[one.id]
        assert record["done"]
        assert [attempt["is_right"] for attempt in record["attempts"]] == [False] * one.num_attempts


# The right answer as the status gives it, by kind or by id.
TOLD = {
    "choice": "144 B",
    "several": (
        "Averaged gradients learn what one process learns; Replicas that never average drift apart"
    ),
    "what-peak": "160 KiB",
    "how-many-parameters": "20,000",
    "order": (
        "the second part of the split model → the first part of the split model → the whole model"
    ),
    "match": "its rows: 40; its ranks: 2; its epochs: 5",
    "predict": "2.20 ms",
    "faulty_line": "return total * 1",
    "what-comes-out": "20 × 4",
    "what-accuracy": "28.0%",
}  # fmt: skip


def test_an_order_that_nobody_touched_is_no_answer(page):
    item = Asking(page, "who-needs-most")
    assert item.press("Check") == "Answer first."
    assert kept(page) == {}
    assert item.give(item.known.right).startswith(RIGHT)


TYPED = [
    ("how-many-parameters", True, "20,000|20 000|20.000|2e4"),
    ("how-many-parameters", False, "2,000|-20000|20,00|0,020"),
    ("what-peak", True, "160|160,2|160kib"),
    ("what-peak", False, "1.6"),
    ("what-comes-out", True, "20 × 4|20x4|[20, 4]|20 by 4"),
    ("what-comes-out", False, "4 × 20|20 × 4 × 1"),
    ("what-accuracy", True, "28|28%|28,0"),
    ("what-accuracy", False, "2.8|0.28%|1"),
]


def test_an_answer_may_be_typed_as_people_type(page):
    for name, is_right, texts in TYPED:
        item = Asking(page, name)
        for text in texts.split("|"):
            said = item.give(text)
            assert said.startswith(RIGHT if is_right else WRONG), (name, text, said)
            if not is_right:
                item.press("Show the answer")
            item.press("Answer again")


PREDICTED = {
    "2.2": [RIGHT],  # the answer is printed as 2.20 ms: both are one number
    "2": ["Close.", "You said 2 ms."],
    "2.6": ["Close."],  # the slider is 12 ms wide
    "2.7": ["Not close."],
    "0.6": ["Not close.", "shared between the ranks"],
    "220": ["Not close."],
}


def test_a_prediction_stands_beside_the_answer_and_is_not_graded(page):
    item = Asking(page, "how-slow")
    for typed, says in PREDICTED.items():
        said = item.give(typed)
        assert [text for text in says if text not in said] == [], (typed, said)
        assert "Averaging took 2.20 ms" in item.text()
        assert (RIGHT in said) == (typed == "2.2")
        assert WRONG not in said
        item.press("Answer again")
    assert item.box.locator(".pb-sure").count() == 0


def test_the_printed_number_is_exact_and_never_close(built_site, open_page):
    page = open_page(built_site / "topics" / "communication-and-time" / "learn.html")
    box = page.locator("#item-ct-learn-guess")
    shown = box.locator(".pb-answers .pb-said").first.text_content()
    number = re.match(r"[\d.,]+", shown)[0]
    assert "paced" in shown  # a word follows the number
    box.locator(".pb-number-field").fill(number)
    box.get_by_role("button", name="Check", exact=True).click()
    assert box.locator("[role=status]").inner_text().startswith(RIGHT)


def test_the_slider_works_by_keyboard_and_once_answered_marks_the_truth(page):
    item = Asking(page, "how-slow")
    field, ends = item.box.locator(".pb-number-field"), item.box.locator(".pb-ends")
    mark = "one => getComputedStyle(one, '::before')"
    height = ends.bounding_box()["height"]
    assert ends.evaluate(f"{mark}.content") == "none"
    slider = item.box.get_by_role("slider")
    assert slider.get_attribute("aria-valuetext") == "not set yet"
    slider.focus()
    unset = slider.evaluate("one => getComputedStyle(one).accentColor")
    page.keyboard.press("End")
    assert slider.evaluate("one => getComputedStyle(one).accentColor") != unset
    assert field.input_value() == "12"
    page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") == "0.12 ms"
    for _ in range(50):
        page.keyboard.press("ArrowRight")
    assert field.input_value() == "6.1"  # halfway between
    item.give("9")
    box = slider.bounding_box()
    left = ends.evaluate(f"one => parseFloat(({mark})(one).left)")
    at = (ends.bounding_box()["x"] + left - box["x"] - 8) / (box["width"] - 16)
    assert at == pytest.approx((2.2 - 0.12) / (12 - 0.12), abs=0.01)
    assert ends.bounding_box()["height"] == height  # nothing below it moves
    item.press("Answer again")
    assert ends.evaluate(f"{mark}.content") == "none"


def test_whoever_gives_up_sees_everything_and_may_answer_again(page):
    for one in ITEMS:
        item = Asking(page, one.id)
        said = item.press("Show the answer")
        assert said == f"Here is the answer: {TOLD.get(one.kind) or TOLD[one.id]}."
        assert one.why_right in item.text(), one.id
        assert item.worked.is_visible()
        assert "pb-button" in page.evaluate("document.activeElement.className")
        item.press("Answer again")
        assert one.why_right not in item.text(), one.id
        assert not item.worked.is_visible()
        assert item.box.evaluate("box => box.contains(document.activeElement)")
        assert item.give(one.right).startswith(RIGHT), one.id
        gave_up, answered = kept(page)[one.id]["attempts"]
        assert gave_up["gave_up"]
        assert gave_up["answer"] is None
        assert answered["is_right"]


def _values(item):
    boxes = item.box.locator(".pb-asked input").all()
    return [int(str(box.get_attribute("value"))) for box in boxes]


def _choose_with_keys(item, keys):
    keys.press("Space")
    for _ in range(_values(item).index(item.known.right)):
        keys.press("ArrowDown")


def _tick_with_keys(item, keys):
    for value in _values(item):
        if value in item.known.right:
            keys.press("Space")
        keys.press("Tab")


def _sort_with_keys(item, keys):
    for place, position in enumerate(item.known.right):
        piece = item.box.locator(f".pb-pieces > li[data-position='{position}']")
        piece.get_by_role("button", name="Move up").focus()
        while item.order().index(position) > place:
            keys.press("Enter")
            here = "document.activeElement.closest('li').dataset.position"
            assert item.page.evaluate(here) == str(position)  # focus stays on the button
            assert re.search(r"now \d of 3\.$", item.said())


def _match_with_keys(item, keys):
    for value in item.known.right:
        first = item.box.locator("select").first
        keys.type(first.locator(f"[value='{value}']").inner_text())
        keys.press("Tab")


def _type_with_keys(item, keys):
    if item.known.kind == "predict":
        keys.press("Tab")  # past the slider
    keys.type(item.known.right)


WORKED_BY = {
    "choice": _choose_with_keys,
    "faulty_line": _choose_with_keys,
    "several": _tick_with_keys,
    "order": _sort_with_keys,
    "match": _match_with_keys,
}


def _work_with_keys(page, one):
    """Answer an item with the keyboard alone, from its first control on; Check has focus then."""
    item = Asking(page, one.id)
    item.box.locator("input, select, .pb-pieces button").first.focus()
    WORKED_BY.get(one.kind, _type_with_keys)(item, page.keyboard)
    for _ in range(12):
        if "pb-check" in page.evaluate("document.activeElement.className"):
            return item
        page.keyboard.press("Tab")
    raise AssertionError(f"{one.id}: Check was not reached")


def test_every_kind_answered_rightly_with_the_keyboard_alone_says_so_and_why(page):
    for one in ITEMS:
        item = _work_with_keys(page, one)
        assert item.said() == "" or one.kind == "order"
        page.keyboard.press("Enter")
        assert item.said().startswith(RIGHT), one.id
        assert "pb-check" in page.evaluate("document.activeElement.className"), one.id
        assert one.why_right in item.text(), one.id
        assert one.why_wrong in item.text() or one.kind in ("number", "predict"), one.id
        assert item.worked.get_attribute("open") is not None
        record = kept(page)[one.id]
        assert record["done"]
        assert [attempt["is_right"] for attempt in record["attempts"]] == [True]
    assert page.locator("[role=status].pb-status").count() == len(ITEMS)


def test_without_scripts_every_item_shows_its_answer(frozen_site, open_page):
    page = open_page(frozen_site / CHALLENGE, java_script_enabled=False)
    for one in ITEMS:
        box = page.locator(f"#item-{one.id}")
        assert one.why_right not in box.inner_text()
        box.locator(".pb-answer > summary").click()
        assert one.why_right in box.inner_text(), one.id


# What stands below each option: of how it was answered, and never of another way.
CHOSE, CHOSE_WRONG = "You chose this, and it is correct.", "You chose this, but it is not correct."
LEFT, LEFT_WRONG = (
    f"You did not choose this, {how} correct." for how in ("but it is", "and it is not")
)
FIRST_WRONG = "You chose this first, but it is not correct."
PUT, IS, IS_NOT = "You put it at place", "This is correct.", "This is not correct."
ANSWERED = [
    ("how-many-bytes", (1, 0), [CHOSE, FIRST_WRONG, ""]),
    ("how-many-bytes", (), [IS, "", ""]),
    ("which-hold", ([0, 2], [0]), [CHOSE, LEFT, LEFT_WRONG]),
    ("which-hold", ([2], [1, 2]), [LEFT, CHOSE, CHOSE_WRONG]),
    ("which-hold", (), [IS, IS, IS_NOT]),
    ("where-is-the-fault", (0, 1), [FIRST_WRONG, CHOSE_WRONG, IS]),
    ("what-belongs", ([1, 0, 2], [2, 0, 1]), [f"You chose “{n}”. The answer:" for n in (5, 40, 2)]),
    ("who-needs-most", ([0, 1, 2], [2, 0, 1]), [f"{PUT} 2.", f"{PUT} 3.", ""]),
]


NOTED = """all => all.sort((one, other) => one.dataset.position - other.dataset.position)
    .map(one => one.querySelector(".pb-chosen")?.innerText ?? "")"""


def test_each_option_says_how_it_was_answered(page):
    for name, answers, says in ANSWERED:
        item = Asking(page, name)
        for answer in answers:
            item.give(answer)
        if not answers:
            item.press("Show the answer")
        noted = item.box.locator(".pb-option").evaluate_all(NOTED)
        assert noted == says, (name, answers)
        item.press("Answer again")


def test_a_pair_that_is_answered_says_each_piece_once(built_site, open_page):
    page = open_page(built_site / "topics" / "sharding" / "learn.html")
    box = page.locator("#item-sd-learn-stage")
    pieces = box.locator("label").all_inner_texts()
    assert any(" " in piece for piece in pieces)  # of a span and more words
    box.get_by_role("button", name="Show the answer").click()
    assert box.locator("label").all_inner_texts() == pieces


def test_a_question_of_two_options_before_the_text_has_a_second_attempt(frozen_site, open_page):
    page = open_page(frozen_site / "topics" / "averaging" / "trace.html")
    box = page.locator("#item-is-it-equal")
    for answer, says in (("No", "one more attempt"), ("Yes", RIGHT)):
        box.get_by_role("radio", name=answer, exact=True).check()
        box.get_by_role("button", name="Check", exact=True).click()
        assert says in box.locator("[role=status]").inner_text()
    assert [one["nth"] for one in kept(page)["is-it-equal"]["attempts"]] == [1, 2]


def test_an_answer_that_is_correct_in_part_says_so_before_the_second_attempt(page):
    item = Asking(page, "which-hold")
    said = item.give([1])
    assert said.startswith("Partly correct:")
    assert "one more attempt" in said
    assert "Their digests differ" not in item.text()
    assert item.give([0, 1]).startswith(RIGHT)


def test_a_typed_mistake_is_marked_as_the_readers_own(page):
    item = Asking(page, "what-peak")
    item.give("78.1")
    item.give("78")
    assert "Your answer matches this mistake. That is the parameters alone" in item.text()
    item.press("Answer again")
    item.give("160")
    assert "matches this mistake" not in item.text()
