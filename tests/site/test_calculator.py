"""The calculator in a browser: the page's numbers are those of the Python formulas."""

import random
import re

import pytest
import yaml

from proofbook.generator.kinds.calculators.formulas import parsed
from tests.conftest import ROOT

pytestmark = pytest.mark.browser

COST = "topics/averaging/cost"
NUM_DRAWS = 20


def _field(page, name):
    return page.locator(f"[data-calculator] [name={name}][type=number]")


def _shown(page, name):
    output = page.locator(f"output[name={name}]")
    return output.inner_text(), output.get_attribute("data-number")


def test_random_inputs_come_to_what_the_formulas_in_python_give(frozen_site, open_page):
    written = yaml.safe_load((ROOT / f"tests/book/content/{COST}.yml").read_text(encoding="utf-8"))
    page, draw = open_page(frozen_site / f"{COST}.html"), random.Random(20)
    fields = page.locator("[data-calculator] [type=number]").all()
    sizes = {one.get_attribute("name"): float(one.get_attribute("data-size")) for one in fields}
    assert set(sizes) == {"model_bytes", "copies", "compute_seconds", "bandwidth"}
    for _ in range(NUM_DRAWS):
        typed = {name: f"{draw.uniform(1, 9):.3g}e{draw.randint(-3, 5)}" for name in sizes}
        typed["copies"] = str(draw.randint(1, 9))  # a count
        for name, text in typed.items():
            _field(page, name).fill(text)
        inputs = {name: float(text) * sizes[name] for name, text in typed.items()}
        for output in written["calculator"]["outputs"]:
            expected = parsed(output["formula"]).value(inputs)
            assert float(_shown(page, output["name"])[1]) == pytest.approx(expected, rel=1e-12)


def test_the_address_keeps_what_is_typed(frozen_site, open_page):
    page = open_page(frozen_site / f"{COST}.html")
    _field(page, "copies").fill("7")
    _field(page, "copies").blur()
    assert page.url.endswith(f"{COST}.html?copies=7#a-calculator")
    shown = page.locator("output").first.inner_text()
    page.goto(page.url)
    assert _field(page, "copies").input_value() == "7"
    assert page.locator("output").first.inner_text() == shown


def test_values_that_no_run_had_are_named_once_below_all_fields(built_site, open_page):
    page = open_page(built_site / "topics/ddp/cost.html")
    form, below = page.locator("[data-calculator] form"), page.locator("[data-beyond]")
    assert below.text_content() == ""
    model, ranks = "parameters of the model", "number of ranks"
    for name, named in (("parameters", model), ("ranks", f"{model}, {ranks}")):
        field = _field(page, name)
        high = float(field.get_attribute("data-covered").split(" ")[1])
        field.fill(str(2 * high / float(field.get_attribute("data-size"))))
        assert below.text_content().startswith(f"Outside the values of the runs: {named}.")
    field.fill("0")
    assert below.text_content().startswith(f"Outside the values of the runs: {model}.")
    fault = form.locator(".pb-field [role=status]").last
    assert fault.text_content() == "Enter a number above zero."
    field.press_sequentially("e")
    assert fault.text_content() == "Enter a whole number."
    for one in form.locator(".pb-field:has([type=number])").all():
        one.locator("[type=number]").fill("")
        is_whole = one.locator("[data-step*=whole]").count()
        wants = "Enter a whole number." if is_whole else "Enter a number, such as 1.5."
        assert one.locator("[role=status]").text_content() == wants


def test_a_field_shows_four_digits_of_its_start_and_calculates_with_all(built_site, open_page):
    page = open_page(built_site / "topics/ddp/cost.html")
    largest = _field(page, "largest")
    first = _shown(page, "default_peak")
    exact = float(largest.get_attribute("data-start")) / float(largest.get_attribute("data-size"))
    assert len(largest.input_value()) == len("7.143") < len(str(exact))
    largest.fill(str(exact))
    assert float(_shown(page, "default_peak")[1]) == pytest.approx(float(first[1]), rel=1e-12)
    largest.fill(largest.get_attribute("value") + "0")  # the same as a number that is typed
    assert _shown(page, "default_peak")[0] == first[0]


def test_a_known_model_fills_all_fields_until_one_is_changed(built_site, open_page):
    page = open_page(built_site / "topics/large-models/cost.html")
    own, *known = page.locator("[data-numbers]").all()
    started = _shown(page, "fsdp")
    known[0].click()
    assert known[0].text_content() == "Llama 8B, bf16, Adam, 8 GPUs"
    fields = {
        one.get_attribute("name"): float(one.input_value()) * float(one.get_attribute("data-size"))
        for one in page.locator("[data-calculator] [type=number]").all()
    }
    total, ends, layers = 8_030_261_248, 2 * 128_256 * 4096, 32  # of the published configuration
    block = (total - ends) / layers
    wanted = {
        "parameters": total, "ranks": 8, "value_bytes": 2, "state_bytes": 12,
        "largest": ends / total, "next": block / total,
        "excess": (4 * block + ends / 2) * 8 / total - 1,
    }  # fmt: skip
    assert fields == {name: pytest.approx(number, rel=1e-3) for name, number in wanted.items()}
    assert float(_shown(page, "single")[1]) == pytest.approx(16 * total, rel=1e-3)
    assert [one.get_attribute("aria-pressed") for one in (own, known[0])] == ["false", "true"]
    _field(page, "ranks").fill("16")
    assert page.locator("[data-numbers][aria-pressed=true]").count() == 0
    own.click()
    assert _shown(page, "fsdp") == started


def test_a_calculator_prints_words_and_no_name_of_a_field(built_site, open_page):
    for topic in ("ddp", "large-models", "pipeline-parallelism", "communication-and-time"):
        page = open_page(built_site / f"topics/{topic}/cost.html")
        names = [
            one.get_attribute("name")
            for one in page.locator("[data-calculator] [type=number]").all()
        ]
        formulas = page.locator("[data-calculator] > .pb-scroll td:nth-child(2)").all_inner_texts()
        said = page.locator(".pb-covered").inner_text() + " ".join(formulas)
        assert [name for name in names if "_" in name and name in said] == []
        assert not re.search(r"\b(moments|largest [)×]|next|excess|rate|flops|kept)\b", said)
