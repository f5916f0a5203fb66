"""The Plan pages: choosing a state and a device, what a table shows, links to runs, weight."""

from __future__ import annotations

import json
import re

import pytest

PAGE = "plan/llama_8b.html"
RUN = "plan_llama_8b.fsdp_on_8"


def _scheduled(work, microbatches):
    """The time of a 1F1B step on stages of so much work a microbatch, a third of it forward."""
    orders = []
    for stage in range(len(work)):
        ahead = min(len(work) - 1 - stage, microbatches)
        orders.append(["F"] * ahead + ["F", "B"] * (microbatches - ahead) + ["B"] * ahead)
    ended, clock, done = {}, [0.0] * len(work), [0] * len(work)
    while any(done[stage] < len(order) for stage, order in enumerate(orders)):
        for stage, order in enumerate(orders):
            while done[stage] < len(order):
                kind = order[done[stage]]
                at = order[: done[stage]].count(kind)
                before = ("F", stage - 1) if kind == "F" else ("B", stage + 1)
                is_first = before[1] in (-1, len(work))
                if not is_first and (*before, at) not in ended:
                    break
                clock[stage] = max(clock[stage], 0 if is_first else ended[*before, at])
                clock[stage] += work[stage] * (1 if kind == "F" else 2) / 3
                ended[kind, stage, at] = clock[stage]
                done[stage] += 1
    return max(clock)


def test_a_pipeline_takes_no_longer_than_its_schedule_and_hardly_less(built_site):
    """Twelve layers in eight stages, so the stages differ; the rate is that of an H100 in bf16."""
    grid = json.loads((built_site / "plans" / "plan_gpt2_124m.json").read_text())
    [row] = [
        one for one in grid["rows"]
        if one["strategy"] == "1f1b" and one["state"] == grid["rows"][0]["state"]
    ]  # fmt: skip
    first, inner, last = (rank["flops"] / row["num_microbatches"] for rank in row["ranks"])
    stages = [first, inner, inner, inner, inner / 2, inner / 2, inner / 2, last]
    assert row["state"]["devices"] == len(stages)
    scheduled = 1000 * _scheduled(stages, row["num_microbatches"]) / 989.5e12
    html = (built_site / "plan" / "gpt2_124m.html").read_text()
    shown = re.search(r'id="pp_1f1b_on_8".*?>([\d,.]+)\sms<', html, re.DOTALL)
    assert 0.95 * scheduled < float(shown[1]) < 1.003 * scheduled


class Plan:
    """The page of one model."""

    def __init__(self, page):
        self.page, self.root = page, page.locator("#figure-plan")
        page.wait_for_function("() => document.querySelector(`script[src*='-plan.js']`)")

    def option(self, name):
        exactly = re.compile(rf"^{re.escape(name)}$")
        return self.root.locator("fieldset label").filter(has_text=exactly).first

    def device(self, name):
        return self.root.locator("[data-lines] label").filter(has_text=re.compile(rf"^{name}\s"))

    def said(self):
        return self.root.locator("output").text_content()

    def over(self):
        return self.root.locator("svg.pb-wide .pb-fails").count()

    def rows(self):
        return [r.get_attribute("id") for r in self.root.locator("tbody tr:visible").all()]


@pytest.fixture
def opened(built_site, open_page):
    def made(page=PAGE, **options):
        options = {"viewport": {"width": 1280, "height": 900}} | options
        return Plan(open_page(built_site / page, **options))

    return made


@pytest.mark.browser
def test_a_device_moves_the_line_and_counts_the_strategies_that_fit(opened):
    plan = opened()
    bars = plan.root.locator("svg.pb-wide [data-need]").all()
    limits = [
        [float(one.get_attribute(name)) for name in ("data-need", "data-least")] for one in bars
    ]
    for name, gib in (("A10", 22.5), ("A100", 40), ("H100", 79.6), ("H200", 140)):
        plan.device(name).click()
        fitting = sum(need <= gib for need, _ in limits)
        assert f"{gib} GiB: {fitting} of {len(bars)} bars fit" in plan.said()
        assert plan.over() == sum(least > gib for _, least in limits)
    plan.root.locator("[data-lines] input").first.focus()
    plan.page.keyboard.press("ArrowRight")
    assert plan.said().startswith("40 GiB")


@pytest.mark.browser
def test_a_number_opens_to_its_simulation_and_the_command_that_repeats_it(opened):
    plan = opened()
    plan.page.locator("#fsdp_on_8 a[data-v]").nth(
        2
    ).click()  # after the device's and what is needed
    box = plan.page.locator(".pb-source")
    assert "simulated, not run at this size" in box.text_content()
    assert f"runners reproduce '{RUN}.ranks[0].measures.reserved_bytes'" in box.text_content()
    assert box.locator("a[href$='plans/plan_llama_8b.json']").count() == 1
    run = box.locator("a[href$='plan/llama_8b.html#fsdp_on_8']")
    assert run.text_content() == "fsdp_on_8"
