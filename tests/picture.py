"""Take the README's picture from the book in `site/html`: `.venv/bin/python tests/picture.py`.

Writes `content/picture.png`: the picture of the home page, answered, in the light scheme.
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PAGE = "index.html"
FIGURE = ".pb-survive"
WINDOW = {"width": 1180, "height": 900}


def main(site: Path = ROOT / "site" / "html", picture: Path = ROOT / "content" / "picture.png"):
    """Open the page and take it."""
    sys.path.insert(0, str(ROOT))
    from tests.browser import find_browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        page = browser.new_page(viewport=WINDOW, color_scheme="light")
        page.goto((site / PAGE).resolve().as_uri())
        page.get_by_role("button", name="See what happened").click()
        figure = page.locator(FIGURE).first
        figure.screenshot(path=picture, animations="disabled")
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
