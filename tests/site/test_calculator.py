"""The calculator in a browser: the page's numbers are those of the Python formulas."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from generator.content.book import load
from generator.content.cost import CalculatorOutput
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
        assert below.text_content().startswith(f"No run had such a value of {named}.")
    field.fill("0")
    assert below.text_content().startswith("No run had such a value of parameters.")
    fault = form.locator(".pb-field [role=status]").last
    assert fault.text_content() == "Enter a number above zero."


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


@pytest.mark.parametrize("ranks", [1, 5])
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
