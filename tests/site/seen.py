"""Pages of the book, each opened once: what `seen.js` finds there, at each width and on paper.

A page is asked as it opens on a desk, then with everything open, and the widths follow without a
reload. What depends on the kind of an element and not on its words is asked at more widths, of
pages that together have every kind. Windows are low, because what they show has to be painted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import listen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
LOW = 100  # pixels
DESK, PHONE, LAPTOP, SMALL = "1280", "390", "640", "320"  # a laptop's window at twice its size
PAPER = "718"  # pixels of a sheet between its margins
WIDE = ("fits", "edges", "tables", "unreachable", "drawings")
PLAYED = "topics/"  # plans have states in hundreds
FEW_COLUMNS = 4  # are no wider than paper


def look_at(browser: Browser, site: Path, paths: list[Path], kinds: set[Path]) -> dict[str, Any]:
    """What was found of each page, by its path below the site."""
    complaints: list[str] = []
    page = browser.new_page()
    listen(page, complaints)
    page.add_init_script(SCRIPT)
    found = {}
    for path in paths:
        name = path.relative_to(site).as_posix()
        found[name] = _looked_at(page, path, is_kind=path in kinds)
        found[name]["complaints"] = complaints.copy()
        complaints.clear()
    page.close()
    return found


def _looked_at(page: Page, path: Path, *, is_kind: bool) -> dict[str, Any]:
    def turn(width: str, media: Any = "screen") -> None:
        page.evaluate("document.body.style.display = 'none'")  # nothing is laid out on the way
        page.emulate_media(media=media)
        page.set_viewport_size({"width": int(width), "height": LOW})

    def ask(*asked: str) -> dict[str, Any]:
        found: dict[str, Any] = page.evaluate("seen.ask", asked)
        return found

    turn(DESK)
    page.goto(path.as_uri())
    seen = ask("words", "levels", "counts", "top")
    tops, counts = {DESK: seen.pop("top")}, seen["counts"]
    if counts["stages"]:
        page.emulate_media(media="print")
        seen |= ask("unprinted")
        page.emulate_media(media="screen")
    plays = ["plays"] * bool(counts["plays"] and PLAYED in path.as_posix())
    page.evaluate("seen.open()")
    looks = {DESK: ask(*WIDE, *plays)}
    if is_kind or counts["columns"] > FEW_COLUMNS:
        turn(PAPER, media="print")
        looks[PAPER] = ask("fits")
    turn(PHONE)
    looks[PHONE] = ask(*WIDE, *plays, "top")
    tops[PHONE] = looks[PHONE].pop("top")
    if is_kind:
        turn(LAPTOP)
        tops[LAPTOP] = ask("top")["top"]
        page.evaluate("seen.openRail()")
        looks[LAPTOP] = ask("fits")
    if is_kind or plays:
        turn(SMALL)
        looks[SMALL] = ask("fits", *plays)
    return {**seen, "tops": tops, "looks": looks}


def found_at(seen: dict[str, Any], asked: str, *inside: str) -> dict[tuple[str, str], list[str]]:
    """Where a question found something: the page, the width, and the first of it."""
    found = {}
    for name, page in seen.items():
        for width, one in page["looks"].items():
            wrong = one.get(asked, [])
            for key in inside if wrong else ():
                wrong = wrong[key]
            if wrong:
                found[name, width] = wrong[:3]
    return found
