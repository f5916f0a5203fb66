"""Take the book's pictures from `site/html`: `.venv/bin/python tests/picture.py`.

Writes, in the light scheme, `content/picture.png`, the answered picture of the home page, which
links to it show; `content/pictures/NAME.png`, the title and a figure of a page, which links to it
and to pages below it show; and `content/lesson.png`, a question of a lesson and what the runs
showed, which the README shows.
"""

import base64
import struct
import sys
import zlib
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
FIGURE = "[data-survive]"
LESSON = "topics/ddp/learn.html"
WINDOW = {"width": 1180, "height": 900}
TALLER = {"width": 1180, "height": 1080}
SHARED = {"width": 1200, "height": 630}
CARD = """<meta charset="utf-8"><style>
body { margin: 0; padding: 52px 60px; display: flex; flex-direction: column; gap: 24px;
  background: #fdfdfb; color: #1f2328; border-top: 14px solid #3b4cca; box-sizing: content-box;
  width: 1080px; overflow: hidden; height: 512px; font: 26px/1.4 "DejaVu Sans", sans-serif; }
h1 { margin: 0; font: bold 58px/1.15 "DejaVu Serif", serif; }
p { margin: 0; color: #5b6069; }
img { min-height: 0; flex: 1; object-fit: contain; object-position: left; }
b { margin-top: auto; font-size: 24px; }
</style><h1></h1><p></p><img hidden><b></b>"""
FILL = """([title, says, brand, drawn]) => {
  document.querySelector("h1").textContent = title;
  document.querySelector("p").textContent = says;
  document.querySelector("b").textContent = brand;
  if (drawn) Object.assign(document.querySelector("img"), { src: drawn, hidden: false });
}"""


def pictured(site: Path) -> dict[str, tuple[str, str]]:
    """By the name of a picture the page whose title it has, and the page with its figure."""
    topics = sorted(path.parent.name for path in site.glob("topics/*/learn.html"))
    of_topics = {
        name: (f"topics/{name}/index.html", f"topics/{name}/learn.html") for name in topics
    }
    others = {
        name: (f"{name}.html", f"{name}.html") for name in ("guide", "labs", "teach", "verify")
    }
    return {**of_topics, **others, "plan": ("plan.html", "plan/llama_8b.html")}


def title_of(picture: bytes) -> str:
    """The title that a picture shows, which stands in it as text."""
    return picture.partition(b"tEXtTitle\0")[2].partition(b"\0END")[0].decode()


def take_shared(page: Page, site: Path, folder: Path):
    """The cards of `pictured`: title, description, and the first figure of the page."""
    page.set_viewport_size(SHARED)
    for name, (titled, drawn) in pictured(site).items():
        page.goto((site / drawn).resolve().as_uri())
        figures = page.locator(".pb-figure svg:visible, .pb-play svg:visible")
        image = figures.first.screenshot(animations="disabled") if figures.count() else b""
        page.goto((site / titled).resolve().as_uri())
        title = page.locator('meta[property="og:title"]').get_attribute("content")
        says = page.locator('meta[property="og:description"]').get_attribute("content")
        page.set_content(CARD)
        source = f"data:image/png;base64,{base64.b64encode(image).decode()}" if image else ""
        page.evaluate(FILL, [title, "" if source else says, "Proofbook", source])
        page.wait_for_timeout(100)
        png = page.screenshot(animations="disabled", scale="css")
        text = b"tEXtTitle\0" + title.encode() + b"\0END"
        chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
        (folder / f"{name}.png").write_bytes(png[:33] + chunk + png[33:])  # behind its head


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
        (folder / "pictures").mkdir(exist_ok=True)
        sharp = browser.new_page(device_scale_factor=2, color_scheme="light")
        take_shared(sharp, site, folder / "pictures")
        browser.close()


def take_lesson(page: Page, site: Path, folder: Path):
    """A lesson from the section with its first question on, with the answers shown."""
    page.goto((site / LESSON).resolve().as_uri())
    page.get_by_label("Show everything at once").evaluate("box => box.click()")  # in a closed menu
    top = page.locator("#predict-then-see").bounding_box()["y"] - 60  # below the page's header
    page.set_viewport_size(TALLER)
    page.evaluate("top => scrollTo(0, top)", top)
    page.wait_for_timeout(400)
    page.screenshot(path=folder / "lesson.png", animations="disabled")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
