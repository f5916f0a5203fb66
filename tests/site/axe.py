"""axe in an open page: the rules that the page breaks while it is at rest, light or dark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from axe_playwright_python.base import AXE_SCRIPT

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = {
    "preload": False,
    "resultTypes": ["violations"],
    "rules": {"target-size": {"enabled": True}},
}
# What depends on the width and on how much a page holds, and not on its kinds of elements alone.
OF_A_PHONE = ["landmark-unique", "scrollable-region-focusable", "target-size"]
RULES = AXE | {"runOnly": {"type": "rule", "values": OF_A_PHONE}}
# The theme's switch of its menu has to stand before the header, outside every landmark.
OF_THE_THEME = ("region", 'id="__drawer"')
SCHEMES = {"light": "default", "dark": "slate"}  # as the theme calls them
# Colours halfway between two states have a contrast that no reader stays with.
AT_REST = "*, *::before, *::after { transition: none !important; animation: none !important }"
OPENED = """() => {
    document.querySelectorAll('.pb-stage').forEach(one => one.removeAttribute('name'));
    document.querySelectorAll('details').forEach(one => { one.open = true });
}"""
RUN = """async ([within, options]) => (await axe.run(within, options)).violations.flatMap(
    rule => rule.nodes.map(node => [rule.id, node.html.slice(0, 200), node.failureSummary]))"""
# The contrast of words is that of all others with their colours, size and grounds: what no page
# before had is asked. Gives these looks, and which are broken.
CONTRAST = """async ([within, known, options]) => {
    const looks = new Map(known.map(look => [look, null])), grounds = new Map([[null, ""]]);
    const ground = one => {
        if (!grounds.has(one)) {
            const { backgroundColor, backgroundImage, opacity } = getComputedStyle(one);
            const own = [backgroundColor, backgroundImage, opacity].join();
            const isClear = own === "rgba(0, 0, 0, 0),none,1";
            grounds.set(one, (isClear ? "" : own + ";") + ground(one.parentElement));
        }
        return grounds.get(one);
    };
    for (const one of document.querySelectorAll(`${within} *`)) {
        const says = ({ nodeType, data }) => nodeType === Node.TEXT_NODE && data.trim();
        const isAsked = [...one.childNodes].some(says) || one.matches("input, select, textarea");
        if (!isAsked || !one.checkVisibility()) continue;
        const { color, fill, fontSize, fontWeight, textShadow } = getComputedStyle(one);
        const look = [color, fill, fontSize, fontWeight, textShadow, ground(one)].join("|");
        if (!looks.has(look)) looks.set(look, one);
    }
    const include = [...looks.values()].filter(Boolean);
    const found = include.length ? (await axe.run({ include }, options)).violations : [];
    return [[...looks.keys()], found.flatMap(rule => rule.nodes.map(
        node => [rule.id, node.html.slice(0, 200), node.failureSummary]))];
}"""


def in_scheme(page: Page, scheme: str) -> None:
    """Let the open page turn light or dark, as it does where a reader's system does."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.wait_for_function(
        "named => document.body.dataset.mdColorScheme === named", arg=SCHEMES[scheme]
    )


def _ready(page: Page, script: str) -> None:
    if not page.evaluate("'axe' in window"):
        page.add_style_tag(content=AT_REST)
        page.evaluate(script)


def violations(
    page: Page, options: dict[str, Any] = AXE, within: str = "html", script: str = AXE_SCRIPT
) -> list[tuple[str, str, str]]:
    """Each rule that the open page breaks, with the element and what is wrong there."""
    _ready(page, script)
    found = [tuple(one) for one in page.evaluate(RUN, [within, options])]
    rule, where = OF_THE_THEME
    return [one for one in found if one[0] != rule or where not in one[1]]


def too_faint(page: Page, known: list[str], within: str = "body") -> list[tuple[str, str, str]]:
    """The words of the open page whose contrast is too low, but for looks in `known`.

    Args:
        page: an open page.
        known: looks that were asked before; those of this page come to them.
        within: a selector.
    """
    _ready(page, AXE_SCRIPT)
    rule = AXE | {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
    known[:], found = page.evaluate(CONTRAST, [within, known, rule])
    return [tuple(one) for one in found]
