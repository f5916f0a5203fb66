"""Take the book's pictures from `site/html`: `.venv/bin/python tests/picture.py`.

Writes, in the light scheme, `content/picture.png`, the answered picture of the home page, which
shared links show; and `content/lesson.png`, a question of a lesson and what the runs showed, which
the README shows.
"""

import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
FIGURE = ".pb-survive"
LESSON = "topics/ddp/learn.html"
WINDOW = {"width": 1180, "height": 900}
TALLER = {"width": 1180, "height": 1080}


def main(site: Path = ROOT / "site" / "html", folder: Path = ROOT / "content"):
    """Open both pages and take them."""
    sys.path.insert(0, str(ROOT))
    from tests.browser import find_browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        page = browser.new_page(viewport=WINDOW, color_scheme="light")
        page.goto((site / "index.html").resolve().as_uri())
        page.get_by_role("button", name="See what happened").click()
        figure = page.locator(FIGURE).first
        figure.screenshot(path=folder / "picture.png", animations="disabled")
        take_lesson(page, site, folder)
        browser.close()


def take_lesson(page: Page, site: Path, folder: Path):
    """A lesson from the section with its first question on, with the answers shown."""
    page.goto((site / LESSON).resolve().as_uri())
    page.get_by_label("Show everything at once").check()
    top = page.locator("#predict-then-see").bounding_box()["y"] - 60  # below the page's header
    page.set_viewport_size(TALLER)
    page.evaluate("top => scrollTo(0, top)", top)
    page.wait_for_timeout(400)
    page.screenshot(path=folder / "lesson.png", animations="disabled")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
