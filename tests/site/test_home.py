"""The home page's picture in a browser: a reader ticks, sees what runs did, and moves the line."""

import pytest

ENDED = "out of memory in backward, not explained by the budget"


@pytest.fixture
def page(frozen_site, open_page):
    return open_page(frozen_site / "index.html", viewport={"width": 1280, "height": 900})


def _rows(page):
    return page.locator(".pb-survive:visible .pb-row")


def _ends(page):
    return page.locator(".pb-survive:visible .pb-end").all_inner_texts()


def test_no_bar_gives_the_answer_away_before_the_reader_asks_for_it(page):
    assert page.locator(".pb-survive:visible").count() == 1
    assert not page.locator(".pb-bars rect:visible, .pb-end:visible, [data-next]:visible").count()
    page.get_by_label("one device").check()  # which ran out of memory
    page.get_by_role("button", name="See what happened").click()
    assert page.locator("[data-task]:visible").inner_text().startswith("Yours: 0 of 2 right.")
    assert _ends(page) == [ENDED, "trains"]


def test_away_from_the_measured_budget_a_row_says_on_which_side_of_the_line_it_lies(page):
    page.get_by_role("button", name="See what happened").click()
    line = page.locator(".pb-survive:visible input[type=range]")
    measured = line.input_value()
    needs = [float(row.get_attribute("data-need")) for row in _rows(page).all()]
    for value in ("0", line.get_attribute("max").partition(".")[0]):
        line.fill(value)
        share = float(value) / float(line.get_attribute("max"))
        assert _ends(page) == [
            "below the line" if need <= share else "above the line" for need in needs
        ]
    line.fill(measured)
    assert _ends(page) == [ENDED, "trains"]


def test_the_line_follows_the_pointer_on_a_bar_and_its_number_stays_above_the_bars(page):
    page.get_by_role("button", name="See what happened").click()
    line = page.locator(".pb-survive:visible input[type=range]")
    bars = page.locator(".pb-survive:visible .pb-bars").first.bounding_box()
    page.mouse.move(bars["x"], bars["y"] + 1)
    page.mouse.down()
    for share in (0.0, 0.5, 1.0):
        page.mouse.move(bars["x"] + share * bars["width"], bars["y"] + 1)
        assert float(line.input_value()) == pytest.approx(
            share * float(line.get_attribute("max")), abs=1
        )
        number = page.locator(".pb-survive:visible .pb-limit b").bounding_box()
        assert number["y"] + number["height"] <= bars["y"]
        assert bars["x"] <= number["x"] + 1
        assert number["x"] + number["width"] <= bars["x"] + bars["width"] + 1


def test_the_other_model_is_shown_by_its_button_and_keeps_the_focus(page):
    page.get_by_role("button", name="See what happened").click()
    page.get_by_role("button", name="parts").click()
    assert page.locator(":focus").inner_text() == "parts"
    assert page.locator(":focus").get_attribute("aria-pressed") == "true"
    assert _rows(page).count() == 1


def test_without_a_script_every_bar_and_every_end_is_shown(frozen_site, open_page):
    page = open_page(frozen_site / "index.html", java_script_enabled=False)
    assert page.locator(".pb-survive:visible").count() == 2
    assert page.locator(".pb-bars rect:visible").count() == page.locator(".pb-bars rect").count()
    assert _ends(page) == [ENDED, "trains", "trains"]
    assert not page.locator(".pb-survive :is(input, button):visible").count()


def test_a_reader_who_comes_back_finds_the_line_at_the_measured_budget(frozen_site, page):
    line = page.locator(".pb-survive input[type=range]").first
    measured = line.input_value()
    page.get_by_role("button", name="See what happened").click()
    line.fill("0")
    page.goto((frozen_site / "glossary.html").as_uri())
    page.go_back()
    assert line.input_value() == measured
