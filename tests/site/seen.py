"""Pages of the book, each opened once: what `seen.js` finds there, at each width and on paper.

A page is asked as it opens on a desk, then with everything open, and the widths follow without a
reload. What depends on the kind of an element and not on its words is asked at more widths, of
pages that together have every kind. Windows are low, because what they show has to be painted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import listen
from tests.site.axe import RULES, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
LOW = 100  # pixels
DESK, PHONE, LAPTOP, SMALL = "1280", "390", "640", "320"  # a laptop's window at twice its size
PAPER = "718"  # pixels of a sheet between its margins
WIDE = ("fits", "edges", "tables", "unreachable", "drawings")
PLAYED = "topics/"  # plans have states in hundreds
MOST_BY_AXE = 10  # pages, since it takes longer than all else
FEW_COLUMNS = 4  # are no wider than paper


def look_at(
    browser: Browser, site: Path, paths: Sequence[Path], looked_at: set[Path], kinds: Sequence[Path]
) -> dict[str, Any]:
    """What was found of each page, by its path below the site.

    Args:
        browser: in which they are opened.
        site: the folder of the book.
        paths: of all pages; each is asked once, as it opens on a desk.
        looked_at: those that are asked at all widths and on paper.
        kinds: those of them that are asked what depends on the kinds of their elements, too; axe
            is asked of the first, which have most kinds, and by `make audit` of all.
    """
    complaints: list[str] = []
    page = browser.new_page()
    listen(page, complaints)
    page.add_init_script(SCRIPT)
    found = {}
    for path in paths:
        name = path.relative_to(site).as_posix()
        page.set_viewport_size({"width": int(DESK), "height": LOW})
        page.goto(path.as_uri())
        found[name] = one = _opened(page)
        if path in looked_at:
            by_axe = path in kinds[:MOST_BY_AXE]
            tops, looks = _looked_at(
                page, one["counts"], path, is_kind=path in kinds, by_axe=by_axe
            )
            one["tops"] |= tops
            one["looks"] |= looks
        found[name]["complaints"] = complaints.copy()
        complaints.clear()
    page.close()
    return found


def _opened(page: Page) -> dict[str, Any]:
    """A page as it opens on a desk."""
    seen: dict[str, Any] = page.evaluate("seen.ask", ["words", "levels", "counts", "top"])
    if seen["counts"]["stages"]:
        page.emulate_media(media="print")
        seen |= page.evaluate("seen.ask", ["unprinted"])
        page.emulate_media(media="screen")
    return {**seen, "tops": {DESK: seen.pop("top")}, "looks": {}}


def _looked_at(
    page: Page, counts: dict[str, int], path: Path, *, is_kind: bool, by_axe: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """By width, where the top of the open page stands, and what is wrong with everything open."""

    def turn(width: str, media: Any = "screen") -> None:
        page.evaluate("document.body.style.display = 'none'")  # nothing is laid out on the way
        page.emulate_media(media=media)
        page.set_viewport_size({"width": int(width), "height": LOW})

    def ask(*asked: str) -> dict[str, Any]:
        found: dict[str, Any] = page.evaluate("seen.ask", asked)
        return found

    # A figure is played at one width, and at soak, where all pages are kinds, at each.
    is_played = bool(counts["plays"] and PLAYED in path.as_posix())
    own = (DESK, PHONE, SMALL)[len(path.as_posix()) % 3]
    plays = {w: ["plays"] * (is_played and (is_kind or w == own)) for w in (DESK, PHONE, SMALL)}
    page.evaluate("seen.open()")
    tops, looks = {}, {DESK: ask(*WIDE, *plays[DESK])}
    if is_kind or counts["columns"] > FEW_COLUMNS:
        turn(PAPER, media="print")
        looks[PAPER] = ask("fits")
    turn(PHONE)
    looks[PHONE] = ask(*WIDE, *plays[PHONE], "top")
    tops[PHONE] = looks[PHONE].pop("top")
    if by_axe:
        looks[PHONE]["rules"] = violations(page, RULES)
    if is_kind:
        turn(LAPTOP)
        tops[LAPTOP] = ask("top")["top"]
        page.evaluate("seen.openRail()")
        looks[LAPTOP] = ask("fits")
    if is_kind or plays[SMALL]:
        turn(SMALL)
        looks[SMALL] = ask("fits", *plays[SMALL])
    return tops, looks


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


def looks(seen: dict[str, Any], width: str) -> list[dict[str, Any]]:
    """What was found at a width, of each page that was asked there."""
    return [one["looks"][width] for one in seen.values() if width in one["looks"]]
