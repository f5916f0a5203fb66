"""Figures that readers operate: by keyboard, pointer and touch, and without a script."""

from __future__ import annotations

import re

import pytest

BUDGET, SCHEDULE, RING, RESHARDING = (
    ("topics/large-models/experiment.html", "wide-bars"),
    ("topics/pipeline-parallelism/learn.html", "schedule"),
    ("topics/ddp/deep.html", "ring"),
    ("topics/sharding/why.html", "resharding"),
)
REVEAL = "for (const one of document.querySelectorAll('[data-after]')) one.hidden = false"


class Operated:
    """One figure of an open page."""

    def __init__(self, page, name):
        page.evaluate(REVEAL)
        self.page, self.root = page, page.locator(f"#figure-{name}")
        self.root.scroll_into_view_if_needed()
        page.wait_for_function(
            "name => document.querySelector(`script[src*='-${name}.js']`)", arg=name
        )

    def drawn(self):
        return self.root.locator(".pb-states-drawn svg desc").first.text_content()

    def option(self, name):
        """The label of an option of any control."""
        exactly = re.compile(rf"^{re.escape(name)}$")
        return self.root.locator("fieldset label").filter(has_text=exactly).last

    def rows(self):
        return [
            int(row.get_attribute("data-state"))
            for row in self.root.locator("tbody tr").all()
            if row.is_visible()
        ]

    def changed(self, act):
        """Do something, and wait until another state is drawn."""
        before = self.drawn()
        act()
        self.page.wait_for_function(
            "([name, before]) =>"
            " document.querySelector(`#${name} svg desc`).textContent !== before",
            arg=[self.root.get_attribute("id"), before],
        )
        return self.drawn()


@pytest.fixture
def operated(built_site, open_page):
    def opened(figure, **options):
        path, name = figure
        options = {"viewport": {"width": 1280, "height": 900}} | options
        return Operated(open_page(built_site / path, **options), name)

    return opened


@pytest.mark.browser
def test_arrow_keys_choose_a_state_and_the_page_says_which(operated):
    one = operated(RING)
    one.root.locator("input").first.focus()
    first = one.drawn()
    second = one.changed(lambda: one.page.keyboard.press("ArrowRight"))
    assert first != second
    assert one.rows() == [1]
    assert one.root.locator("[role=status]").text_content().startswith("Steps done: 1")
    assert one.changed(lambda: one.page.keyboard.press("ArrowLeft")) == first


@pytest.mark.browser
def test_a_combination_without_a_run_shows_the_nearest_and_says_what_it_changed(operated):
    one = operated(SCHEDULE)
    four = one.root.locator("fieldset").nth(1).locator("label").filter(has_text=re.compile("^4$"))
    one.changed(four.click)
    without = one.root.locator(".pb-no-run")
    assert without.all_text_contents() == ["1F1B", "2"]
    assert without.first.locator("input").get_attribute("title") == "No run with the other choices"
    one.changed(one.option("1F1B").click)
    checked = one.root.locator("input:checked + span").all_text_contents()
    assert checked == ["1F1B", "8", "4"]  # no run of 1F1B has four microbatches
    status = one.root.locator("[role=status]")
    assert "Changed as well: Microbatches: 8." in status.text_content()
    assert status.evaluate("one => one.getBoundingClientRect().height") > 10
    one.changed(one.option("16").click)
    assert status.text_content().startswith("Schedule: 1F1B; Microbatches: 16")


def _place(line):
    """Where the line of a budget stands."""
    return float(re.fullmatch(r"translate\(([\d.]+)\)", line.get_attribute("transform"))[1])


@pytest.mark.browser
def test_the_budget_moves_by_keys_and_counts_the_ranks_whose_peak_fits(operated):
    one = operated(BUDGET)
    slider = one.root.locator("input[type=range]")
    needs = [
        float(text.get_attribute("data-need"))
        for text in one.root.locator("svg.pb-wide [data-need]").all()
    ]
    line = one.root.locator("svg.pb-wide [data-scale]").first
    places = []
    slider.focus()
    for key in ("Home", "PageUp", "PageUp", "ArrowRight", "End"):
        one.page.keyboard.press(key)
        budget = float(slider.input_value())
        fitting = sum(need <= budget for need in needs)
        said = slider.get_attribute("aria-valuetext")
        assert f"{fitting} of {len(needs)} bars fit" in said
        assert one.root.locator("output").text_content() == said
        over = one.root.locator("svg.pb-wide .pb-fails").count()
        assert over == len(needs) - fitting
        places.append(_place(line))
    assert places == sorted(places)
    assert places[0] < places[-1]
