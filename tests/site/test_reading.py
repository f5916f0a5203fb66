"""The site as a reader has it: from disk, by keyboard, on a phone, dark, without JavaScript."""

import re

import pytest

from tests.conftest import wait_until
from tests.popovers import popovers_of

pytestmark = pytest.mark.browser

EXPERIMENT = "topics/sharding/experiment.html"
TRACE = "topics/averaging/trace.html"
WORKED = "topics/averaging/worked.html"
LEARN = "topics/averaging/learn.html"
ASKED = "topics/sharding/learn.html"
FOCUSED = "document.activeElement"
SCHEME = "document.body.dataset.mdColorScheme"
TOLD = """() => Object.fromEntries([...document.querySelectorAll('.pb-source dt')].reverse().map(
    name => [name.textContent, name.nextElementSibling.textContent]))"""


def tab_to(page, what):
    """Press Tab until an element has the focus."""
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate(f"{FOCUSED}.matches({what!r})"):
            return
    raise AssertionError(f"the keyboard does not reach {what}")


def test_the_scheme_can_be_switched_by_the_reader_and_stays(frozen_site, open_page):
    page = open_page(frozen_site / "index.html", color_scheme="light")
    page.locator("[title='Switch to the dark scheme']").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(SCHEME) == "slate"
    page.goto((frozen_site / TRACE).as_uri())
    assert page.evaluate(SCHEME) == "slate"
    page.emulate_media(color_scheme="dark")
    page.locator("[title='Switch to the light scheme']").click()
    assert page.evaluate(SCHEME) == "default"


def test_the_menu_opens_and_closes_by_keyboard_on_a_phone(frozen_site, open_page):
    page = open_page(frozen_site / TRACE, viewport={"width": 320, "height": 640})
    menu = page.locator(".md-nav--primary").first
    in_view = "menu => menu.getBoundingClientRect().right > 0"
    assert not menu.evaluate(in_view)
    tab_to(page, "#__drawer")
    button = page.locator(".md-header__button[for=__drawer]")
    assert button.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
    page.keyboard.press("Space")
    wait_until(lambda: menu.evaluate(in_view))
    tab_to(page, ".md-nav--primary a")
    page.locator("#__drawer").focus()
    page.keyboard.press("Space")
    wait_until(lambda: not menu.evaluate(in_view))


def test_without_scripts_nothing_pretends_and_everything_is_there(frozen_site, open_page):
    page = open_page(frozen_site / EXPERIMENT, java_script_enabled=False)
    question = page.locator(".pb-question").first
    assert not question.locator("button:visible, .pb-sure:visible, .pb-slider:visible").count()
    question.locator(".pb-answer > summary").click()
    assert question.locator(".pb-answers").is_visible()
    value = page.locator(".pb-value").first
    run = value.get_attribute("href").partition("#")[2]
    value.click()
    assert page.locator(f"#{run}").is_visible()
    assert page.url.endswith(f"#{run}")
    page.goto((frozen_site / TRACE).as_uri())
    for stage in page.locator(".pb-stage").all()[::-1]:
        stage.locator("summary").click()
        assert stage.locator("svg").is_visible()
    page.goto((frozen_site / "topics/averaging/cost.html").as_uri())
    assert not page.locator("[data-calculator] form").is_visible()
    formulas = page.locator("[data-calculator] table").first.inner_text()
    assert "Bytes of the model × Copies of each parameter" in " ".join(formulas.split())


@pytest.mark.parametrize(("first", "last"), [("p", "p"), ("math mi", "math[display] mfrac mi")])
def test_what_is_copied_holds_its_formulas_as_latex(frozen_site, open_page, first, last):
    page = open_page(frozen_site / WORKED)
    around = page.evaluate("""([first, last]) => {
        const text = document.querySelector('p:has(math)').parentElement;
        const ends = [...text.querySelectorAll(last)];
        const range = document.createRange();
        range.setStart(text.querySelector(first), 0);
        range.setEnd(ends.at(-1), ends.at(-1).childNodes.length);
        getSelection().addRange(range);
        return text.innerText;
    }""", [first, last])  # fmt: skip
    page.keyboard.press("Control+C")
    page.evaluate("new Promise(requestAnimationFrame)")
    assert page.evaluate("document.querySelector('p:has(math)').parentElement.innerText") == around
    assert page.evaluate("!getSelection().isCollapsed")
    page.evaluate("document.body.prepend(document.createElement('textarea'))")
    page.locator("textarea").focus()
    page.keyboard.press("Control+V")
    said = page.locator("textarea").input_value()
    assert "$b$ bytes peaks on one rank" in said
    assert r"$$\frac{b}{ 2 } = \text{" in said


def test_what_a_question_says_again_holds_a_formula_once(frozen_site, open_page):
    page = open_page(frozen_site / EXPERIMENT)
    said = page.evaluate("""() => {
        const text = document.createElement('p');
        const annotation = '<annotation>4 M / n</annotation>';
        text.innerHTML = `It is <math><semantics><mi>n</mi>${annotation}</semantics></math>.`;
        return proofbook.plain(text);
    }""")
    assert said == "It is 4 M / n."


def test_provenance_opens_and_closes_with_the_keyboard(frozen_site, open_page):
    page = open_page(frozen_site / TRACE)
    value = page.locator(".pb-stage .pb-measured.pb-value").first
    value.focus()
    page.keyboard.press("Enter")
    popover = page.locator(".pb-source")
    popover.wait_for(state="visible")
    page.keyboard.press("Tab")  # its links come next
    assert page.evaluate(f"{FOCUSED}.closest('.pb-source') !== null")
    page.keyboard.press("Escape")
    popover.wait_for(state="hidden")


def test_every_value_of_a_page_opens_to_what_its_data_says(frozen_site, open_page):
    file = frozen_site / EXPERIMENT
    page = open_page(file)
    page.get_by_text("This topic").click()
    page.get_by_role("checkbox", name="show everything at once").check()
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    sources = popovers_of(file.read_text(encoding="utf-8"))
    seen = set()
    for link in page.locator("a[data-v]").all():
        number = int(link.get_attribute("data-v"))
        if number in seen or not link.is_visible():
            continue
        seen.add(number)
        link.evaluate("one => one.click()")
        page.locator(".pb-source b").wait_for()  # the first value loads its script
        told, source = page.evaluate(TOLD), sources[number]
        assert told.get("exactly") == source.exactly
        assert told.get("repeat", told.get("repeat its inputs")) == source.command
        name = "from" if source.source else "source" if source.kind == "cited" else "formula"
        assert told.get(name) == (source.source or source.formula)
        assert page.locator(".pb-source b").inner_text() == source.shown
    assert len(seen) > 10


def test_on_a_phone_a_source_lies_within_the_window_and_hides_no_number(frozen_site, open_page):
    page = open_page(frozen_site / TRACE, viewport={"width": 390, "height": 700})
    value = page.locator(".pb-stage .pb-measured.pb-value:visible").first
    value.evaluate("one => scrollTo(0, one.getBoundingClientRect().bottom + scrollY - innerHeight)")
    value.click()
    box, number = page.locator(".pb-source").bounding_box(), value.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert 0 <= box["y"] <= number["y"] - box["height"]


def test_a_table_is_one_stop_of_the_tab_key_and_arrows_move_in_it(frozen_site, open_page):
    page = open_page(frozen_site / "evidence" / "tiny_memory.html")
    links = page.locator(".pb-runs").first.locator("a[href]")
    stops = links.evaluate_all("all => all.filter(one => one.tabIndex >= 0).length")
    assert stops == 1
    links.first.focus()
    for key, at in (("ArrowRight", 1), ("ArrowRight", 2), ("End", links.count() - 1)):
        page.keyboard.press(key)
        assert links.nth(at).evaluate("one => one === document.activeElement"), key


def test_the_button_of_a_line_shows_the_parts_that_wait_for_this_time(frozen_site, open_page):
    page = open_page(frozen_site / EXPERIMENT)
    line = page.locator(".pb-waits").filter(visible=True)
    shown = page.locator("[data-after]").filter(visible=True)
    assert not shown.count()
    line.get_by_role("button", name="Show it").click()
    assert shown.count() > 1
    assert page.evaluate(f"{FOCUSED}.matches('[data-after]')")
    assert not line.count()
    page.reload()
    assert line.count() == 1


def test_a_reader_can_show_everything_and_the_browser_keeps_that(frozen_site, open_page):
    page = open_page(frozen_site / EXPERIMENT)
    page.get_by_text("This topic").click()
    switch = page.get_by_role("checkbox", name="show everything at once")
    waiting = page.locator("[data-after]")
    switch.focus()
    page.keyboard.press("Space")
    assert waiting.filter(visible=True).count() == waiting.count() > 2
    page.goto((frozen_site / LEARN).as_uri())  # another page
    page.get_by_text("This topic").click()
    assert switch.is_checked()
    assert not page.locator(".pb-answer[open]").count()  # questions still ask
    switch.uncheck()
    page.reload()
    page.get_by_text("This topic").click()
    assert not switch.is_checked()


@pytest.mark.parametrize("script", [True, False])
def test_a_link_to_a_question_of_a_part_that_waits_shows_the_question(
    built_site, open_page, script
):
    html = (built_site / ASKED).read_text(encoding="utf-8")
    _, name, *_ = re.findall(r'class="pb-question" id="([^"]+)"', html)  # where the runs are shown
    page = open_page(f"{(built_site / ASKED).as_uri()}#{name}", java_script_enabled=script)
    box = page.locator(f"#{name}")
    assert box.is_visible()
    assert 0 <= box.bounding_box()["y"] < 720


@pytest.mark.parametrize(
    ("path", "label", "words", "css", "called"),
    [
        ("retracted", "Show statements that contain", "model fits", ".pb-statement", "statements"),
        ("glossary", "Show terms with", "one-rank", ".pb-terms dd", "terms"),
    ],
)
def test_typed_words_leave_what_has_them_and_a_link_shows_all(
    frozen_site, open_page, path, label, words, css, called
):
    page = open_page(frozen_site / f"{path}.html")
    shown = page.locator(f"{css}:visible")
    whole = shown.count()
    page.get_by_label(label).fill(words)
    assert 0 < shown.count() < whole
    texts = (" ".join(one.lower().split()) for one in shown.all_inner_texts())
    assert all(words.replace("-", " ") in one for one in texts)
    assert page.locator("output").inner_text() == f"{shown.count()} of {whole} {called}"
    page.evaluate("location.hash = 'an-entry'")
    wait_until(lambda: shown.count() == whole)
