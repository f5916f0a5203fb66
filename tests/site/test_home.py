"""The home page in a browser: what fits a model, and the wager of a reader on what runs did."""

import re

import pytest

ENDED = "out of memory in backward, not explained by the budget"
CHOICES = [("llama-8b", "8", "79.6"), ("llama-70b", "64", "40.0"), ("gpt2-124m", "1", "22.5")]


@pytest.fixture
def page(frozen_site, open_page):
    return open_page(frozen_site / "index.html", viewport={"width": 1280, "height": 900})


def _ends(page):
    return page.locator("[data-survive]:visible .pb-end > span").all_inner_texts()


def _choose(page, *choice):
    for name, value in zip(("model", "devices", "memory"), choice, strict=True):
        page.locator(f"select[name={name}]").select_option(value)


@pytest.mark.parametrize("choice", CHOICES)
def test_what_fits_is_what_the_plan_page_says_and_the_address_keeps_it(
    built_site, open_page, choice
):
    page = open_page(built_site / "index.html")
    _choose(page, *choice)
    said = page.locator(".pb-fit [role=status]").inner_text()
    page.goto(page.url)
    assert page.locator(".pb-fit [role=status]").inner_text() == said
    assert [
        page.locator(f"select[name={name}]").input_value() for name in ("model", "devices")
    ] == [*choice[:2]]
    page.get_by_role("link", name="All simulated layouts").click()
    fitting, simulated = re.findall(r"\d+", said)
    says = rf"\b{simulated} layouts were simulated for this choice, and ({fitting}|all) fit\."
    page.locator("figure", has_text=re.compile(says)).wait_for()


def test_what_no_plan_has_is_not_simulated_and_a_command_does_it(built_site, open_page):
    page = open_page(built_site / "index.html")
    assert page.locator(".md-content .pb-check:visible").count() == 1  # one primary button
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    _choose(page, "llama-8b", "32", "140.4")
    fit = page.locator(".pb-fit")
    assert fit.locator("[role=status]").inner_text() == "Not simulated"
    assert "plan for llama-8b --devices 4x8 --memory 140.4" in fit.locator("code").inner_text()
    assert not fit.locator("table").count()
    took = page.evaluate(
        "() => { const from = performance.now(); document.querySelector('.pb-fit form')"
        ".dispatchEvent(new Event('change', {bubbles: true})); return performance.now() - from; }"
    )
    assert took < 100
    assert not asked


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


def test_a_chosen_model_is_one_that_was_simulated_and_its_box_keeps_its_height(
    built_site, open_page
):
    page = open_page(built_site / "index.html")
    fit, devices = page.locator(".pb-fit"), page.locator("select[name=devices]")
    height, said = fit.bounding_box()["height"], fit.locator("[role=status]")
    for model in page.locator("select[name=model] option").evaluate_all(
        "all => all.map(o => o.value)"
    ):
        devices.select_option("8")
        page.locator("select[name=model]").select_option(model)
        is_known = model != "config.json"
        assert is_known == (said.inner_text() != "Not simulated")
        assert is_known == bool(devices.locator("[label=Simulated] :checked").count())
        assert (devices.input_value() == "8") == ("because 8 was not" not in said.inner_text())
        assert fit.bounding_box()["height"] == height


def test_without_a_script_the_first_answer_stands_with_links_to_all_plans(built_site, open_page):
    page = open_page(built_site / "index.html", java_script_enabled=False)
    fit = page.locator(".pb-fit")
    assert fit.locator("table:visible").count() == 1
    assert not fit.locator("select:visible").count()
    assert fit.locator("noscript a[href^='plan/']").count() >= 7


def test_no_bar_gives_the_answer_away_before_the_reader_asks_for_it(page):
    assert page.locator("[data-survive]:visible").count() == 1
    assert not page.locator(
        ".pb-bars rect:visible, .pb-end > span:visible, [data-next]:visible"
    ).count()
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
