"""The calculator in a browser: the page's numbers are those of the Python formulas."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from generator.content.book import load
from generator.content.calculator import CalculatorOutput
from generator.evidence.calculator import parsed

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

COST = "topics/averaging/cost.html"
NUM_DRAWS = 20


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


def test_values_that_no_run_had_are_named_once_below_all_fields(built_site, open_page):
    page = open_page(built_site / "topics/ddp/cost.html")
    form, below = page.locator("[data-calculator] form"), page.locator("[data-beyond]")
    assert below.text_content() == ""
    for named in ("parameters", "parameters, ranks"):
        field = form.locator(f"[name={named.rpartition(' ')[2]}][type=number]")
        high = float(field.get_attribute("data-covered").split(" ")[1])
        field.fill(str(2 * high / float(field.get_attribute("data-size"))))
        assert below.text_content().startswith(f"Outside the values of the runs: {named}.")
    field.fill("0")
    assert below.text_content().startswith("Outside the values of the runs: parameters.")
    fault = form.locator(".pb-field [role=status]").last
    assert fault.text_content() == "Enter a number above zero."


def test_a_field_shows_three_digits_of_its_start_and_calculates_with_all(built_site, open_page):
    page = open_page(built_site / "topics/ddp/cost.html")
    largest = page.locator("[data-calculator] [name=largest][type=number]")
    first = _shown(page, "default_peak")
    exact = float(largest.get_attribute("data-start")) / float(largest.get_attribute("data-size"))
    assert len(largest.input_value()) == len("7.14") < len(str(exact))
    largest.fill(str(exact))
    assert float(_shown(page, "default_peak")[1]) == pytest.approx(float(first[1]), rel=1e-12)
    largest.fill(largest.get_attribute("value") + "0")  # the same as a number that is typed
    assert _shown(page, "default_peak")[0] == first[0]
