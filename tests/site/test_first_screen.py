"""The first screen of every lesson: one line, the title, and the first sentence.

What a reader came for begins there, at each width, and nothing else stands above it.
"""

import pytest

from tests.site.html_reading import pages

pytestmark = pytest.mark.browser
LEAST = 100
TITLE, SENTENCE = 140, 320  # where they begin at the latest, on a desk and on a phone
LINE = 30  # of what stands above a title
# A laptop, a phone, and the laptop at twice its size: its height is what a reader sees at once.
SCREENS = ((1280, 800), (390, 844), (640, 450))
MEASURED = """() => {
    const top = one => one.getBoundingClientRect().top;
    const title = document.querySelector('article h1');
    const sentence = document.querySelector('article h1 ~ p, article h1 ~ div p');
    const first = document.createRange();
    first.selectNodeContents(sentence);
    const line = first.getClientRects()[0];
    const rail = document.querySelector('.pb-rail');
    const marks = [...document.querySelectorAll(':is(article, .pb-sections) [aria-current]')];
    // The next row of links that have wrapped is nearer to a mark than its own words are.
    const astray = marks.filter(one => one.checkVisibility()).filter(one => {
        const words = document.createRange();
        words.selectNodeContents(one);
        return one.getBoundingClientRect().bottom - words.getBoundingClientRect().bottom > 9;
    });
    return {
        title: top(title), sentence: line.top, end: line.bottom,
        line: rail ? rail.offsetHeight : 0, astray: astray.length,
        wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    };
}"""


def test_title_and_first_sentence_of_every_lesson_stand_on_the_first_screen(built_site, open_page):
    known = {*built_site.glob("topics/*/*.html"), built_site / "first-run.html"}
    lessons = sorted(known.intersection(pages(built_site)))
    page, wrong = open_page("about:blank"), []
    for path in lessons:
        page.goto(path.as_uri())
        for width, height in SCREENS:
            page.set_viewport_size({"width": width, "height": height})
            found = page.evaluate(MEASURED)
            if (
                found["title"] > TITLE or found["sentence"] > SENTENCE or found["end"] > height
                or found["line"] > LINE or found["astray"] or found["wide"]
            ):  # fmt: skip
                wrong.append(("/".join(path.parts[-2:]), width, found))
    assert wrong == []
    assert len(lessons) > LEAST
