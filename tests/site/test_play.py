"""Figures that readers operate: by keyboard, pointer and touch, and without a script."""

import json
import math
import re
from datetime import UTC, datetime

import pytest

from tests.conftest import wait_until

pytestmark = pytest.mark.browser

BUDGET = ("topics/large-models/experiment.html", "wide-bars")
SCHEDULE = ("topics/pipeline-parallelism/learn.html", "schedule")
RING = ("topics/ddp/deep-by-hand.html", "ring")
RESHARDING = ("topics/sharding/why.html", "resharding")
STEP = ("topics/ddp/trace.html", "one-step")
UNITS = ("topics/sharding/trace.html", "one-step")
VOCABULARY = (
    "topics/tensor-parallelism/deep-vocabulary-parallel-embedding-and-loss.html", "vocabulary",
)  # fmt: skip
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
        wait_until(lambda: self.drawn() != before)
        return self.drawn()


def test_the_address_keeps_the_state_and_the_title_links_to_the_figure(opened):
    one, name = opened(RESHARDING), RESHARDING[1]
    assert one.root.locator("figcaption a").get_attribute("href") == f"#figure-{name}"
    drawn = one.changed(one.root.locator("fieldset label").nth(1).click)
    address = one.page.url
    assert f"?{name}=Ranks%3A+4" in address
    assert address.endswith(f"#figure-{name}")
    one.page.goto("about:blank")
    one.page.goto(address)
    again = Operated(one.page, name)
    wait_until(lambda: again.drawn() == drawn)


def test_arrow_keys_choose_a_state_and_the_page_says_which(opened):
    one = opened(RESHARDING)
    assert one.rows() == []  # the numbers that bars show are folded
    one.root.locator("summary").click()
    assert {*one.rows()} == {0}
    one.root.locator("input").first.focus()
    first = one.drawn()
    one.changed(lambda: one.page.keyboard.press("ArrowRight"))
    assert {*one.rows()} == {1}
    assert one.root.locator("[role=status]").text_content().startswith("Ranks: 4")
    assert one.changed(lambda: one.page.keyboard.press("ArrowLeft")) == first


def test_a_combination_without_a_run_shows_the_nearest_and_says_what_it_changed(opened):
    one = opened(SCHEDULE)
    four = one.root.locator("fieldset").first.locator("label").filter(has_text=re.compile("^4$"))
    one.changed(four.click)
    without = one.root.locator(".pb-no-run")
    assert without.all_text_contents() == ["2"]
    assert without.first.locator("input").get_attribute("title") == "No run with the other choices"
    one.changed(one.root.locator("fieldset").last.locator("label").first.click)
    checked = one.root.locator("input:checked + span").all_text_contents()
    assert checked == ["8", "2"]  # no run of two ranks has four microbatches
    status = one.root.locator("[role=status]")
    assert "Changed as well: Microbatches: 8." in status.text_content()
    beside = one.root.locator("legend").evaluate_all(
        "all => all.map(one => getComputedStyle(one, '::after').visibility)"
    )
    assert beside == ["visible", "hidden"]  # where readers see it
    one.changed(one.option("16").click)
    assert "Changed as well: Ranks: 4. Microbatches: 16; Ranks: 4" in status.text_content()


def _place(line):
    """Where the line of a budget stands."""
    return float(re.fullmatch(r"translate\(([\d.]+)\)", line.get_attribute("transform"))[1])


def test_the_budget_moves_by_keys_and_counts_the_ranks_whose_peak_fits(opened):
    one = opened(BUDGET)
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


@pytest.fixture
def opened(built_site, open_page):
    def of(figure, kind=Operated, **options):
        path, name = figure
        options = {"viewport": {"width": 1280, "height": 900}} | options
        return kind(open_page(built_site / path, **options), name)

    return of


class Played(Operated):
    """A figure with a player."""

    def __init__(self, page, name):
        super().__init__(page, name)
        self.range = self.root.locator(".pb-player input")
        self.back, self.button, self.forward = self.root.locator(".pb-player button").all()
        told = self.root.locator("[data-moments]").get_attribute("data-moments")
        self.moments = json.loads(told)

    def told(self):
        """Which moment the player is in, by its words; they and the range say the same."""
        said = self.root.locator(".pb-player p").text_content()
        heard = self.range.get_attribute("aria-valuetext")
        assert heard.partition("\n")[0] == said
        at = int(self.range.input_value()) / 1000
        now = max(n for n, (start, _) in enumerate(self.moments) if start <= at + 5e-4)
        assert heard == self.moments[now][1]
        return now

    def line(self):
        """Where the line of the wide drawing is, as a part of its way."""
        line = self.root.locator("svg.pb-wide [data-now]")
        start, end = map(float, line.get_attribute("data-now").split())
        return (_place(line) - start) / (end - start)


def test_a_play_opens_at_its_beginning_and_keys_and_the_pointer_go_from_moment_to_moment(opened):
    one = opened(STEP, Played)
    last = len(one.moments) - 1
    assert one.told() == 0
    assert one.root.locator("[data-now]:visible").count() == 0  # it would cross labels
    for button, moment in ((one.forward, 1), (one.forward, 2), (one.back, 1)):
        button.click()
        assert one.told() == moment
    one.range.focus()
    for key, moment in (("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        one.page.keyboard.press(key)
        assert one.told() == moment
        assert one.line() == pytest.approx(one.moments[moment][0], abs=1e-3)
    seen = one.root.locator("svg.pb-wide [data-during]:visible")
    assert seen.all_text_contents() == ["forward"]  # of the second layer
    one.page.keyboard.press("End")
    assert one.told() == last
    assert seen.all_text_contents() == ["averaged"] * 4
    box = one.range.bounding_box()
    one.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert 0 < one.told() < len(one.moments) - 1
    at = one.line()
    assert at == pytest.approx(0.5, abs=0.02)
    one.changed(one.root.locator("fieldset label").nth(1).click)  # a longer backward
    one.moments = json.loads(one.root.locator("[data-moments]").get_attribute("data-moments"))
    one.told()
    assert one.line() == pytest.approx(at, abs=1e-3)


def test_a_play_runs_from_its_beginning_until_it_is_stopped_and_paper_has_its_end(opened):
    one = opened(RING, Played)
    one.range.focus()
    one.page.keyboard.press(" ")
    wait_until(lambda: 10 < int(one.range.input_value()) < 900)
    assert one.button.text_content() == "Pause"
    one.button.click()
    assert one.button.text_content() == "Play"
    at = one.range.input_value()
    one.page.evaluate("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")
    assert one.range.input_value() == at
    one.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert one.told() == len(one.moments) - 1
    last = one.root.locator("svg.pb-wide [data-during] text:visible").all_text_contents()
    assert last.count("4,444") == 4
    one.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert one.range.input_value() == at


def test_digits_of_ranks_appear_row_by_row_until_the_loss_of_all_logits(opened):
    one = opened(VOCABULARY, Played)
    seen = one.root.locator("svg.pb-wide [data-during] > text:visible")
    logits = [float(word) for word in seen.all_text_contents()[6:]]  # below as many words
    assert len(logits) == 6
    for moment in range(1, len(one.moments)):
        num = seen.count()
        one.forward.click()
        assert one.told() == moment
        assert seen.count() > num
    loss = math.log(sum(map(math.exp, logits))) - logits[0]
    assert [float(word) for word in seen.all_text_contents()[-2:]] == [
        pytest.approx(loss, 5e-3)
    ] * 2


def test_a_play_of_many_moments_takes_twelve_seconds_at_speed_one(built_site, open_page):
    page = open_page("about:blank")
    # The theme's timers do not bear a clock that jumps: "executing a cancelled action".
    page.route("**/bundle.*.js", lambda route: route.fulfill(body=""))
    page.clock.install(time=0)
    page.goto((built_site / UNITS[0]).as_uri())
    one = Played(page, UNITS[1])
    assert len(one.moments) > 30
    page.clock.pause_at(datetime.fromtimestamp(600, UTC))  # or it goes on as the machine does
    for speed, seconds in (("0.5", 24), ("1", 12), ("2", 6)):
        one.root.locator(".pb-player select").select_option(f"{speed}×")
        one.button.click()
        page.clock.run_for(1000 * seconds // 2)
        assert int(one.range.input_value()) == pytest.approx(500, abs=10)
        page.clock.run_for(1000 * seconds // 2 + 100)
        assert one.told() == len(one.moments) - 1
        assert one.button.text_content() == "Play"


def test_play_stands_above_the_drawing_and_within_the_first_screen_of_a_figure(opened):
    one = opened(STEP, Played)
    assert one.rows() == [0]  # waits are not drawn as numbers, so these are not folded
    for width in (1280, 390):
        one.page.set_viewport_size({"width": width, "height": 780})
        parts = (one.root, one.button, one.root.locator(".pb-states-drawn"))
        top, play, drawn = (part.bounding_box() for part in parts)
        assert play["y"] + play["height"] < drawn["y"]
        assert drawn["y"] - top["y"] < 780 - 100


def test_where_motion_is_not_wanted_a_play_goes_from_moment_to_moment(opened):
    one = opened(STEP, Played, reduced_motion="reduce")
    assert not one.button.is_visible()
    for moment in range(1, 4):
        one.forward.click()
        assert one.told() == moment
        assert one.line() == pytest.approx(one.moments[moment][0], abs=1e-3)


@pytest.mark.parametrize("figure", [STEP, RING], ids=["step", "ring"])
def test_without_a_script_a_play_stands_whole_and_its_moments_are_listed(
    built_site, open_page, figure
):
    path, name = figure
    page = open_page(built_site / path, java_script_enabled=False)
    root = page.locator(f"#figure-{name}")
    assert root.locator(".pb-player:visible").count() == 0
    assert root.locator("[data-now]:visible").count() == 0  # nothing is to come
    last = root.locator("svg.pb-wide [data-during] text:visible").all_text_contents()
    sums = [f"{1111 * chunk:,}" for chunk in range(1, 5)]
    assert sorted(last) == (["averaged"] * 4 if figure == STEP else sorted(sums * 4))
    assert root.locator(".pb-drawn").is_visible()
    root.locator("noscript summary").click()
    moments = json.loads(root.locator("[data-moments]").get_attribute("data-moments"))
    assert root.locator("noscript li").all_text_contents() == [words for _, words in moments]


# --- stages of a trace, and the values of charts

TRACE = "topics/averaging/trace.html"
STAGES = ["stage-load", "stage-train"]


def test_a_link_to_a_stage_opens_it_and_closes_the_others(frozen_site, open_page):
    page = open_page((frozen_site / TRACE).as_uri() + "#stage-train")
    for wanted in ("stage-train", "stage-load"):
        page.evaluate(f"location.hash = '{wanted}'")
        page.locator(f"#{wanted} dl").wait_for(state="visible")
        assert [one for one in STAGES if page.locator(f"#{one} dl").is_visible()] == [wanted]


@pytest.fixture
def chart(frozen_site, open_page):
    """A page, its chart, and what tells the value of a mark."""
    page = open_page(frozen_site / TRACE)
    return page, page.locator("#figure-curve svg").first, page.locator("[role=tooltip]")


def test_a_mark_tells_its_value_under_the_pointer_and_the_table_knows_it(chart):
    page, drawing, tip = chart
    table = re.sub(r"\s+", " ", page.locator("#figure-curve table").first.text_content())
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        marks = drawing.locator("[data-say]:visible")
        assert marks.count() > 3
        drawing.scroll_into_view_if_needed()
        for mark in (marks.nth(0), marks.nth(3)):
            place = mark.bounding_box()
            page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
            assert re.fullmatch(r"\w+, epoch \d+: (.+)", tip.inner_text())[1] in table
            box = tip.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width


def test_a_chart_is_one_stop_of_the_keyboard_and_arrows_go_through_its_marks(chart):
    page, drawing, tip = chart
    marks = drawing.locator("[data-say]")
    says = [mark.get_attribute("data-say") for mark in marks.all()]
    marks.first.focus()
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.closest('svg')") is None
    page.keyboard.press("Tab")
    heard = []
    for _ in says:
        focused = page.locator(":focus")
        assert focused.get_attribute("aria-label") == tip.inner_text()
        heard.append(tip.inner_text())
        page.keyboard.press("ArrowRight")
    assert heard == says
    page.keyboard.press("Tab")
    assert drawing.locator(":focus").count() == 0
