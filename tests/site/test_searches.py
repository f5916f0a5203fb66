"""What learners type finds what they look for: in a browser, over http and from disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml

from tests.conftest import BROWSER_SECONDS, listen, slowness, wait_until
from tests.site.test_search_hides import hidden_in, sentences_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

SEARCHES = yaml.safe_load(Path(__file__).with_name("searches.yml").read_text(encoding="utf-8"))
NUM_TYPED = 10  # hidden answers that are typed into the search
FORGET = """() => {
  for (const name of ["__list", "__meta"])
    document.querySelector(".md-search-result" + name).replaceChildren();
}"""
# Enter opens the link with the highest score; the results are sorted by the best of each page.
OPENED = """() => {
  const links = [...document.querySelectorAll(".md-search-result__item:first-child a")];
  const score = (link) => Number(link.querySelector("[data-md-score]").dataset.mdScore);
  const best = links.sort((one, other) => score(other) - score(one))[0];
  return best && [best.href, best.querySelector("h1, h2").textContent];
}"""


class Searching(NamedTuple):
    """A page of the book with the search open, and where the book stands."""

    page: Page
    address: str

    def types(self, words: str) -> None:
        """Put words into the search, and wait until it has answered."""
        self.page.evaluate(FORGET)
        self.page.locator(".md-search__input").fill(words)
        self.page.keyboard.press("End")  # the search listens to keys
        meta = self.page.locator(".md-search-result__meta")
        wait_until(lambda: meta.text_content().strip())

    def first(self, words: str) -> tuple[str, str]:
        """What Enter opens: the page's path and anchor, and the heading shown."""
        self.types(words)
        found: tuple[str, str] = wait_until(lambda: self.page.evaluate(OPENED))
        return found[0].removeprefix(self.address), found[1]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def served(built_site: Path) -> Iterator[str]:
    """The address at which the book is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(built_site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def searching(built_site: Path, browser: Browser) -> Iterator[Searching]:
    """The home page, opened from disk, with the search open."""
    address = f"{built_site.as_uri()}/"
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(1000 * BROWSER_SECONDS * slowness())
    complaints: list[str] = []
    listen(page, complaints)
    page.goto(f"{address}index.html")
    page.locator(".md-search__input").click()
    yield Searching(page, address)
    page.close()
    assert complaints == []


@pytest.fixture
def searches():
    """What is typed; `make soak` types all."""
    return SEARCHES[::6]


def test_what_learners_type_opens_what_they_look_for(searching, searches):
    others = {}
    for one in searches:
        opened, heading = searching.first(one["types"])
        is_page = opened.split("#")[0] == f"{one['page']}.html"
        if not (is_page and one.get("heading", "").lower() in heading.lower()):
            others[one["types"]] = (opened, heading)
    assert others == {}


def test_a_result_says_the_topic_and_the_kind_of_its_lesson(searching):
    searching.types("local sgd")
    first = searching.page.locator(".md-search-result__item:first-child h1")
    assert first.locator(".pb-eyebrow").text_content() == "DistributedDataParallel · Experiment"


def test_words_lead_to_a_page_that_does_not_say_them(browser: Browser, served: str):
    """The words of the longest lead decide, however the theme ranks what it found."""
    page = browser.new_page()
    page.goto(f"{served}404.html")
    page.add_script_tag(url=f"{served}assets/search-results.js")
    entries = [
        {"location": "deep.html", "title": "Deep", "text": "out of memory in backward"},
        {"location": "guide.html", "title": "Guide", "text": "help", "leads": ["out of memory"]},
        {"location": "guide.html#b", "title": "B", "text": "-", "leads": ["Memory in backward"]},
        {"location": "cpu.html", "title": "Machines", "text": "-", "alone": ["memory"]},
    ]
    found = page.evaluate(
        """async entries => {
          class Theme extends EventTarget {
            postMessage({type}) {
              if (type !== 2) return;
              const data = {type: 3, data: {items: [[{...entries[0], score: 9, terms: {}}]]}};
              this.dispatchEvent(new MessageEvent("message", {data}));
            }
          }
          const told = [];
          const ask = await proofbookSearch(Theme, "", ({data}) => told.push(data.items));
          ask({type: 0, data: {config: {separator: " |,"}, docs: entries}});
          const searches = ["out of memory", "memory in backward, out of", "memory of", "memory"];
          for (const typed of searches) ask({type: 2, data: typed});
          return told.map(items => items.map(group => group.map(one => one.location)));
        }""",
        entries,
    )
    page.close()
    assert found == [
        [["guide.html"], ["deep.html"]],
        [["guide.html#b", "guide.html"], ["deep.html"]],
        [["deep.html"]],
        [["cpu.html"], ["deep.html"]],
    ]


def test_no_result_shows_an_answer_that_a_reader_types(searching, built_site):
    asked = 0
    for path in sorted(built_site.glob("topics/*/*.html")):
        longest = sorted(set(sentences_of(hidden_in(path))), key=len)[-2:]
        for sentence in longest[: max(0, NUM_TYPED - asked)]:
            searching.types(sentence.replace('"', " "))
            shown = searching.page.locator(".md-search-result__list").text_content()
            assert sentence not in " ".join(shown.split())
            asked += 1
    assert asked == NUM_TYPED
