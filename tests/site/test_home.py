"""The home page in a browser: the wager of a reader on what runs did."""

import pytest

ENDED = "out of memory in backward, not explained by the budget"


@pytest.fixture
def page(frozen_site, open_page):
    return open_page(frozen_site / "index.html", viewport={"width": 1280, "height": 900})


def _ends(page):
    return page.locator("[data-survive]:visible .pb-end > span").all_inner_texts()


def test_the_wager_answers_in_words_and_its_card_keeps_its_height(built_site, open_page):
    page = open_page("about:blank")
    card = page.locator("[data-survive]:visible")
    for width in (1280, 640, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto((built_site / "index.html").as_uri())
        height = card.bounding_box()["height"]
        card.get_by_label("one device").check()
        card.get_by_role("button", name="See what happened").click()
        assert card.locator(".pb-end small").all_inner_texts() == [
            "you: yes, wrong", *["you: no, right"] * 2, *["you: no, wrong"] * 2
        ]  # fmt: skip
        assert card.bounding_box()["height"] == pytest.approx(height, abs=1)


def test_no_bar_gives_the_answer_away_before_the_reader_asks_for_it(page):
    assert page.locator("[data-survive]:visible").count() == 1
    assert not page.locator(
        ".pb-bars rect:first-child:visible, .pb-end > span:visible, [data-next]:visible"
    ).count()
    assert page.locator(".pb-bars rect:last-child:visible").count() == 3  # parameters
    page.get_by_label("one device").check()  # which ran out of memory
    page.get_by_role("button", name="See what happened").click()
    assert page.locator("[data-task]:visible").inner_text() == "Yours: 0 of 2 right."
    assert _ends(page) == [ENDED, "trains"]


def test_the_other_model_is_shown_by_its_button_and_keeps_the_focus(page):
    page.get_by_role("button", name="See what happened").click()
    page.get_by_role("button", name="parts").click()
    assert page.locator(":focus").inner_text() == "parts"
    assert page.locator(":focus").get_attribute("aria-pressed") == "true"
    assert page.locator("[data-survive]:visible .pb-row").count() == 1


def test_without_a_script_and_on_paper_every_end_is_shown_and_nobody_was_asked(
    frozen_site, open_page
):
    page = open_page(frozen_site / "index.html", java_script_enabled=False)
    assert page.locator("[data-survive]:visible").count() == 2
    assert page.locator(".pb-bars rect:visible").count() == page.locator(".pb-bars rect").count()
    assert _ends(page) == [ENDED, "trains", "trains"]
    asked = "[data-survive] :is(input, button, .pb-end small):visible"  # "you: no, wrong"
    assert not page.locator(asked).count()
    on_paper = open_page(frozen_site / "index.html")
    on_paper.emulate_media(media="print")
    assert not on_paper.locator(asked).count()
