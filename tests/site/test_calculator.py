"""The calculator in a browser: the page's numbers are those of the Python formulas."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from generator.content.book import load
from generator.content.modes.cost import CalculatorOutput
from generator.evidence import units
from generator.evidence.calculator import UNITS, parsed
from generator.evidence.units import AS_RULED

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

COST = "topics/averaging/cost.html"
NUM_DRAWS = 40


@pytest.fixture(scope="module")
def outputs() -> dict[str, CalculatorOutput]:
    content = Path(__file__).parents[1] / "book" / "content"
    book = load(content, "reference-frozen", is_stale=lambda _: False)
    lesson: Any = next(t for t in book.topics if t.id == "averaging").lessons["cost"].model
    return {one.name: one for one in lesson.calculator.outputs}


@pytest.fixture
def page(frozen_site: Path, open_page: Any) -> Page:
    opened: Page = open_page(frozen_site / COST)
    return opened


def _sizes(page: Page) -> dict[str, float]:
    fields = page.locator("[data-calculator] [type=number]").all()
    return {
        str(field.get_attribute("name")): float(field.get_attribute("data-size") or 0)
        for field in fields
    }


def _shown(page: Page, name: str) -> tuple[str, str]:
    output = page.locator(f"output[name={name}]")
    return output.inner_text(), str(output.get_attribute("data-number"))


def test_random_inputs_come_to_what_the_formulas_in_python_give(page, outputs):
    sizes, draw = _sizes(page), random.Random(20)
    assert set(sizes) == {"model_bytes", "copies", "compute_seconds", "bandwidth"}
    for _ in range(NUM_DRAWS):
        typed = {name: f"{draw.uniform(1, 9):.3g}e{draw.randint(-3, 5)}" for name in sizes}
        typed["copies"] = str(draw.randint(1, 9))  # a count
        for name, text in typed.items():
            page.locator(f"[name={name}][type=number]").fill(text)
        inputs = {name: float(text) * sizes[name] for name, text in typed.items()}
        for name, output in outputs.items():
            expected = parsed(output.formula).value(inputs)
            assert float(_shown(page, name)[1]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", ["0.004", "1", "12.5", "999", "1023", "4096", "123456789"])
def test_results_are_printed_as_every_page_prints_numbers(page, outputs, size):
    page.locator("[name=model_bytes][type=number]").fill(size)
    page.locator("[name=copies][type=number]").fill("3")
    text, number = _shown(page, "peak")
    exact = float(number)
    whole = int(exact) if exact.is_integer() else exact
    assert text == units.printed(whole, UNITS[outputs["peak"].quantity], AS_RULED)


def test_at_the_start_the_form_says_what_the_table_says(page):
    for name, label in (("peak", "Peak of a rank"), ("step", "Time of a step")):
        row = page.locator("[data-calculator] table").first.locator("tr", has_text=label)
        assert _shown(page, name)[0] == row.locator(".pb-number .pb-value").inner_text()


def test_what_cannot_be_worked_out_shows_a_dash(page):
    page.locator("[name=bandwidth][type=number]").fill("0")
    assert _shown(page, "step")[0] == "–"
    assert _shown(page, "peak")[0] != "–"
    page.locator("[name=copies][type=number]").fill("")
    assert _shown(page, "peak")[0] == "–"
    page.locator("[name=copies][type=number]").fill("2")
    assert _shown(page, "peak")[0] != "–"


def test_a_slider_moves_its_field_and_the_results_by_keyboard_too(page):
    field = page.locator("[name=copies][type=number]")
    slider = page.locator(".pb-field", has=field).locator("[type=range]")
    before = _shown(page, "peak")[1]
    slider.focus()
    page.keyboard.press("End")
    assert field.input_value() == field.get_attribute("max")
    assert slider.get_attribute("aria-valuetext") == field.input_value()
    assert float(_shown(page, "peak")[1]) > float(before)
    page.keyboard.press("Home")
    assert field.input_value() == field.get_attribute("min")
    page.keyboard.press("ArrowRight")
    assert field.input_value() == "1"  # a count moves by whole numbers


def test_a_field_moves_its_slider(page):
    field = page.locator("[name=model_bytes][type=number]")
    slider = page.locator(".pb-field", has=field).locator("[type=range]")
    field.fill(str(field.get_attribute("max")))
    assert slider.input_value() == slider.get_attribute("max")
    field.fill(str(field.get_attribute("min")))
    assert slider.input_value() == "0"


def test_without_scripts_the_formulas_stand_with_their_results_and_no_dead_form(
    frozen_site, open_page
):
    page = open_page(frozen_site / COST, java_script_enabled=False)
    assert not page.locator("[data-calculator] form").is_visible()
    table = page.locator("[data-calculator] table").first
    assert table.is_visible()
    assert "model_bytes\xa0×\xa0copies" in table.inner_text()
    assert "largest error" in table.inner_text()
    inputs = page.locator("[data-calculator] noscript li")
    assert inputs.count() == page.locator("[data-calculator] .pb-field").count() > 0


SCREENS = [{"width": 1280, "height": 800}, {"width": 390, "height": 844}]
# Whether all of an element is on the screen, and nothing else lies on it.
IN_VIEW = """one => {
  const box = one.getBoundingClientRect()
  const at = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)
  return box.top >= 0 && box.bottom <= innerHeight && (at === one || one.contains(at))
}"""


def _in_view(page: Page, selector: str) -> list[bool]:
    return [one.evaluate(IN_VIEW) for one in page.locator(selector).all()]


@pytest.mark.parametrize("screen", SCREENS, ids=lambda one: str(one["width"]))
def test_one_click_from_the_top_of_a_cost_page_shows_a_field_and_all_results(
    built_site, open_page, screen
):
    pages = sorted(built_site.glob("topics/*/cost.html"))
    assert len(pages) > 3
    for path in pages:
        page = open_page(path, viewport=screen)
        page.get_by_role("link", name="With your own numbers").click()
        assert page.evaluate("scrollY") > screen["height"], path
        assert _in_view(page, "[data-calculator] [type=number]")[0], path
        assert all(_in_view(page, "[data-calculator] output")), path
        page.close()


@pytest.mark.parametrize("screen", SCREENS, ids=lambda one: str(one["width"]))
def test_each_field_that_has_the_focus_is_in_view_with_all_results(built_site, open_page, screen):
    for path in sorted(built_site.glob("topics/*/cost.html")):
        page = open_page(path, viewport=screen)
        names = [
            one.get_attribute("name")
            for one in page.locator("[data-calculator] [type=number]").all()
        ]
        page.locator(f"[name={names[0]}][type=number]").focus()
        reached = []
        for key in ("Tab", "Shift+Tab"):
            while page.evaluate("document.activeElement.matches('[data-calculator] form *')"):
                if page.evaluate("document.activeElement.type") == "number":
                    reached.append(page.evaluate("document.activeElement.name"))
                    assert _in_view(page, ":focus") == [True], (path, reached)
                    assert all(_in_view(page, "[data-calculator] output")), (path, reached)
                page.keyboard.press(key)
            page.keyboard.press("Shift+Tab")
        assert reached == [*names, *reversed(names)]
        page.close()


def _sent_around_a_ring(ranks: int) -> float:
    """What a rank sends in an all-reduce, as a share of its payload: rank by rank, part by part."""
    held = [[{rank} for _ in range(ranks)] for rank in range(ranks)]  # whose values a part sums
    num_sent = 0
    for turn in range(2 * (ranks - 1)):
        parts = [(rank - turn) % ranks for rank in range(ranks)]
        passed = [held[rank][part] for rank, part in enumerate(parts)]
        for rank, part in enumerate(parts):
            held[(rank + 1) % ranks][part] = held[(rank + 1) % ranks][part] | passed[rank]
        num_sent += 1
    assert all(part == set(range(ranks)) for rank in held for part in rank)
    return num_sent / ranks


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
@pytest.mark.parametrize(
    ("topic", "payload", "per_payload"),
    [("ddp", "payload", 1), ("multi-gpu", "gradients", 1), ("sharding", "payload", 0.5)],
)
def test_a_rank_sends_over_a_ring_what_passing_parts_on_comes_to(
    built_site, open_page, topic, payload, per_payload, ranks
):
    """An all-gather or a reduce-scatter goes around the ring once, an all-reduce twice."""
    page = open_page(built_site / f"topics/{topic}/cost.html")
    size = _sizes(page)["parameters"]
    page.locator("[name=parameters][type=number]").fill(str(100e6 / size))
    page.locator("[name=ranks][type=number]").fill(str(ranks))
    bytes_passed = float(_shown(page, payload)[1])
    assert bytes_passed >= 4 * 100e6
    expected = per_payload * _sent_around_a_ring(ranks) * bytes_passed
    assert float(_shown(page, "sent")[1]) == pytest.approx(expected, rel=1e-12)


NAMED = "e => e.labels[0]?.textContent || e.ariaLabelledByElements?.[0]?.textContent"


def test_every_field_and_result_has_a_name_of_its_own(page):
    form = page.locator("[data-calculator] form")
    numbers, sliders = form.get_by_role("spinbutton"), form.get_by_role("slider")
    for several in (numbers, sliders, form.locator("output")):
        names = [one.evaluate(NAMED) for one in several.all()]
        assert len(names) == len(set(names)) > 1
        assert all(names)


def test_what_no_training_could_have_is_said_and_comes_to_nothing(page):
    field = page.locator("[name=copies][type=number]")
    said = page.locator(".pb-field", has=field).locator("[role=status]")
    outputs_of = "them => them.map(one => one.value)"
    for typed, is_out in (("3", False), ("0", True), ("-3", True), ("2", False)):
        field.fill(typed)
        assert ("above zero" in said.inner_text()) == is_out, typed
        assert (field.get_attribute("aria-invalid") == "true") == is_out
        values = page.locator("[data-calculator] output").evaluate_all(outputs_of)
        assert ("–" in values) == is_out


def test_a_count_is_a_whole_number_and_no_part_is_larger_than_its_whole(built_site, open_page):
    page = open_page(built_site / "topics/sharding/cost.html")
    page.get_by_role("checkbox", name="show everything at once").check()
    for name, typed, words in (
        ("ranks", "2.5", "a whole number"),
        ("unit", "101", "at most 100 %"),
        ("unit", "50", ""),
        ("next", "50", "at most"),  # no other unit is larger than the largest
        ("gathered", "9", "at most"),  # a parameter and its gradient are stored
    ):
        field = page.locator(f"[name={name}][type=number]")
        before = field.input_value()
        field.fill(typed)
        said = page.locator(".pb-field", has=field).locator("[role=status]").inner_text()
        assert words in said, (name, typed)
        assert (_shown(page, "peak")[0] == "–") == bool(words)
        field.fill(before)


@pytest.mark.parametrize(("millions", "ranks"), [("0.01", "1"), ("56", "3"), ("7000", "8")])
def test_all_ranks_together_hold_at_least_the_model(built_site, open_page, millions, ranks):
    page = open_page(built_site / "topics/large-models/cost.html")
    page.get_by_role("checkbox", name="show everything at once").check()
    page.locator("[name=parameters][type=number]").fill(millions)
    page.locator("[name=ranks][type=number]").fill(ranks)
    single, *others = (
        float(_shown(page, name)[1])
        for name in ("single", "ddp", "zero1", "stages", "fsdp", "tensor_parallel")
    )
    assert all(held * float(ranks) >= single * (1 - 1e-9) for held in others)


def test_a_value_that_no_run_had_keeps_its_result_and_says_so(built_site, open_page):
    page = open_page(built_site / "topics/sharding/cost.html")
    page.get_by_role("checkbox", name="show everything at once").check()
    field = page.locator("[name=ranks][type=number]")
    said = page.locator(".pb-field", has=field).locator("[role=status]")
    covered = [float(end) for end in str(field.get_attribute("data-covered")).split()]
    for ranks in (*covered, covered[1] + 1):
        field.fill(str(ranks))
        assert ("No run had such a value" in said.inner_text()) == (ranks not in covered)
        assert field.get_attribute("aria-invalid") == "false"
        assert _shown(page, "peak")[0] != "–"


def test_at_the_start_nothing_is_wrong_and_each_count_has_its_unit(built_site, open_page):
    for path in sorted(built_site.glob("topics/*/cost.html")):
        page = open_page(path)
        fields = page.locator(".pb-field").all()
        assert fields
        for field in fields:
            assert field.locator("[role=status]").text_content() == "", path
            assert field.locator(".pb-field-set .pb-label").text_content(), path
        page.close()
