"""What `make audit` asks of pages, as far as it can be asked without its tools."""

from __future__ import annotations

import pytest

from tests.site.html_reading import Reading, Tag, pages, read

CONTROLS = frozenset(["button", "input", "meter", "output", "progress", "select", "textarea"])
VERBATIM = frozenset(["script", "style", "pre", "code"])


@pytest.fixture(scope="module")
def readings(built_site) -> dict[str, Reading]:
    return {one.relative_to(built_site).as_posix(): read(one) for one in pages(built_site)}


def _is_verbatim(ancestors: tuple[Tag, ...]) -> bool:
    return any(tag.name in VERBATIM for tag in ancestors)


def test_no_page_shows_a_backtick(readings):
    found = {
        page: shown
        for page, reading in readings.items()
        if (shown := [t for t, inside in reading.texts if "`" in t and not _is_verbatim(inside)])
    }
    assert found == {}
    assert len(readings) > 40


def test_a_label_holds_one_control_and_a_figure_begins_with_its_caption(built_site):
    num_labels = num_captions = 0
    for page in pages(built_site):
        html = page.read_text(encoding="utf-8")
        for label in html.split("<label")[1:]:
            inside = Reading()
            inside.feed("<label" + label.partition("</label>")[0])
            assert sum(tag.name in CONTROLS for tag in inside.tags) <= 1, (page, label[:80])
            num_labels += 1
        for figure in html.split("<figure")[1:]:
            inside = Reading()
            inside.feed("<figure" + figure.partition("</figure>")[0])
            assert inside.tags[1].name == "figcaption", (page, figure[:80])
            num_captions += 1
    assert num_labels > 100
    assert num_captions > 20
