"""What a browser keeps of a reader: over reloads and edits, as a file out and in, or not at all."""

import json
from typing import Any

import pytest

from tests.site.asking import CHALLENGE, ITEMS, RECALL, RIGHT, Asking, kept

pytestmark = pytest.mark.browser

TOPICS = "topics/index.html"
NOTE = "This browser keeps nothing"
SIXTY_FOUR = "d" * 64


@pytest.fixture
def page(frozen_site, open_page):
    return open_page(frozen_site / CHALLENGE)


def _record(at: int, answer: Any = 0, **changes: Any) -> dict[str, Any]:
    attempt = {
        "at": at, "answer": answer, "is_right": True, "confidence": 2, "gave_up": False, "nth": 1,
    }  # fmt: skip
    return {
        "digest": SIXTY_FOUR, "attempts": [attempt | changes.pop("attempt", {})], "due": at,
        "stability": 1.0, "difficulty": 5.0, "reviewed": 0, "again": False, "done": True,
    } | changes  # fmt: skip


def _file(items: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({"proofbook": 1, "exported_at": "", "items": items} | changes).encode()


def _import(page: Any, content: bytes) -> str:
    """Hand a file to the page; what it says then."""
    page.locator("[data-recall-done]").evaluate("place => { place.textContent = '' }")
    page.locator("[data-recall-import]").set_input_files(
        {"name": "answers.json", "mimeType": "application/json", "buffer": content}
    )
    page.locator("[data-recall-done]:not(:empty)").wait_for()
    return str(page.locator("[data-recall-done]").inner_text())


def test_another_revision_says_so_and_touches_no_other_item(page):
    for one in ITEMS[:3]:
        Asking(page, one.id).give(one.right)
    edited, *others = (one.id for one in ITEMS[:3])
    older = json.dumps(kept(page)[edited] | {"digest": "abc"})
    page.evaluate(f"older => {{ localStorage['proofbook:item:{edited}'] = older }}", older)
    page.reload()
    item = Asking(page, edited)
    assert item.said() == "This question has changed since you answered it."
    assert not item.worked.is_visible()
    for name in others:
        assert Asking(page, name).said().startswith("You answered this before.")
    item.give(0)
    (attempt,) = kept(page)[edited]["attempts"]  # those of the older text are not of this one
    assert attempt["is_right"]


def test_links_tick_pages_when_all_is_answered_and_every_answer_is_there_again(page, frozen_site):
    tick = page.locator(".pb-lessons a[aria-current]")
    for number, one in enumerate(ITEMS, 1):
        assert "✓" not in tick.text_content()
        Asking(page, one.id).give(one.right)
        if number == 3:
            page.evaluate("sessionStorage.tab = 'first'")
            page.goto((frozen_site / TOPICS).as_uri())
            card = page.locator(".pb-map li[data-items]", has_text="Asking").first
            assert f"3 of {len(ITEMS)} answered" in card.inner_text()
            assert "✓" not in card.inner_text()
            page.go_back()
    assert "✓" in tick.text_content()
    assert "all answered, the latest answers correct" in str(tick.text_content())
    page.goto((frozen_site / TOPICS).as_uri())
    card = page.locator(".pb-map li[data-items]", has_text="Asking").first
    assert "✓" in card.inner_text()
    other = page.locator(".pb-map li[data-items]", has_text="Sharding").first
    assert "✓" not in other.inner_text()
    assert "answered" not in other.inner_text()
    before = kept(page)
    page.goto((frozen_site / CHALLENGE).as_uri())
    for one in ITEMS:
        item = Asking(page, one.id)
        assert item.said().startswith("You answered this before."), one.id
        assert one.why_right in item.text(), one.id
        assert item.worked.is_visible()
    assert Asking(page, "what-peak").box.locator(".pb-number-field").input_value() == "160"
    assert Asking(page, "who-needs-most").order() == [2, 1, 0]
    assert kept(page) == before


def test_a_reload_gives_no_try_back_and_moves_no_day(page):
    two_tries = [one for one in ITEMS if one.num_attempts == 2]
    for one in two_tries:
        Asking(page, one.id).give(one.wrong)
    page.reload()
    for one in two_tries:
        item = Asking(page, one.id)
        assert item.said().startswith("You answered this before. Not quite."), one.id
        assert "one more attempt" in item.said(), one.id
        assert one.why_right not in item.text(), one.id
        assert "You gave this answer already." in item.give(one.wrong), one.id
        assert item.give(one.right).startswith(RIGHT), one.id
        record = kept(page)[one.id]
        assert [attempt["nth"] for attempt in record["attempts"]] == [1, 2]
        assert record["due"] <= page.evaluate("Date.now()")  # as after any wrong first try


BLOCKED = """
const real = window.localStorage;
Object.defineProperty(window, 'localStorage', { get() {
  if (/proofbook[^/]*[.]js/.test(new Error().stack))
    throw new DOMException('The operation is insecure.', 'SecurityError');
  return real;
} });
"""
FULL = """
Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') };
"""


@pytest.mark.parametrize("script", [BLOCKED, FULL], ids=["blocked", "full"])
def test_a_store_that_refuses_costs_no_page_and_is_said_once(frozen_site, open_page, script):
    page = open_page("about:blank")
    page.add_init_script(script)
    page.goto((frozen_site / CHALLENGE).as_uri())
    assert NOTE not in page.locator("main").inner_text()
    for one in ITEMS[:2]:
        assert Asking(page, one.id).give(one.right).startswith(RIGHT)
        assert Asking(page, one.id).worked.is_visible()
    assert page.locator("main").inner_text().count(NOTE) == 1
    page.goto((frozen_site / RECALL).as_uri())
    page.get_by_role("button", name="Answer new questions").click()
    item = Asking(page, "how-many-bytes")
    assert item.give(0).startswith(RIGHT)
    assert page.get_by_role("button", name="Next question").is_visible()
    assert kept(page) == {}


def test_answers_go_out_as_a_file_and_come_in_where_they_are_newer(page, frozen_site, tmp_path):
    for one in ITEMS[:3]:
        Asking(page, one.id).give(one.right)
    Asking(page, "where-is-the-fault").press("Show the answer")
    page.goto((frozen_site / RECALL).as_uri())
    before = kept(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    file = tmp_path / "answers.json"
    download.value.save_as(file)
    assert "Exported the answers to 4 questions." in page.locator("main").inner_text()
    written = json.loads(file.read_text())
    assert written["proofbook"] == 1
    assert written["items"] == before
    assert {*before} == {one.id for one in (*ITEMS[:3], ITEMS[7])}
    now = page.evaluate("Date.now()")
    older, newer, unknown = "how-many-bytes", "which-hold", "of-another-topic"
    content = {
        older: _record(1000),
        newer: _record(now, [1], digest=before[newer]["digest"]),
        unknown: _record(now),
    }
    assert _import(page, _file(content)).startswith("Imported the answers to 2 questions")
    after = kept(page)
    assert after[older] == before[older]
    assert after[newer] == content[newer]
    assert after[unknown] == content[unknown]
    assert after["what-peak"] == before["what-peak"]
    page.goto((frozen_site / CHALLENGE).as_uri())
    assert "You did not choose this, but it is correct. The" in Asking(page, newer).text()


REFUSED = {
    "no JSON": (b"{", "does not hold"),
    "another program's": (b'{"items": {}}', "does not hold"),
    "a newer version": (_file({}, proofbook=2), "does not hold"),
    "one bad of two": (
        _file({"which-hold": _record(2**40), "what-peak": {"digest": 1}}), "does not hold",
    ),
}  # fmt: skip


def test_a_file_that_is_no_export_is_refused_whole_with_one_line(page, frozen_site):
    Asking(page, "what-peak").give("160")
    page.goto((frozen_site / RECALL).as_uri())
    before = kept(page)
    assert list(before) == ["what-peak"]
    for name, (content, says) in REFUSED.items():
        said = _import(page, content)
        assert says in said, name
        assert "nothing was taken from it" in said, name
        assert kept(page) == before, name


def test_all_answers_are_deleted_only_after_a_second_word(page, frozen_site):
    for one in ITEMS[:2]:
        Asking(page, one.id).give(one.right)
    page.goto((frozen_site / RECALL).as_uri())
    page.evaluate("localStorage.setItem('another-site', 'stays')")
    asked = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.get_by_role("button", name="Delete all").click()
    assert asked[0].startswith("Delete the answers to all 2 questions")
    assert len(kept(page)) == 2
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete all").click()
    text = page.locator("main").inner_text()
    assert "All answers are deleted." in text
    assert "Nothing is due." in text
    assert kept(page) == {}
    assert page.evaluate("localStorage.getItem('another-site')") == "stays"
