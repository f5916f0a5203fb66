"""Charts: plain series in, inline SVG out, by Vega-Lite compiled at build time.

Flow: `figures.py` reads runs and hands over rows of words and numbers; a function here per kind of
chart makes a Vega-Lite specification in pixels we choose ourselves; `svg` compiles it, once per
content (kept in memory and in `.cache/charts/`). Nothing is drawn in a literal colour: every fill
and stroke is a CSS variable of the site, so that one SVG serves the light and the dark scheme.
Series differ by dash as well as by colour, and an outcome is always said in words too.

Text is measured with Liberation Sans, which vl-convert carries inside, so that the bytes do not
depend on the fonts of a machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import vl_convert

Spec = dict[str, Any]

CACHE = Path(".cache") / "charts"
FONT = "Liberation Sans"
SIZE = 13  # of all text; the site's CSS says it once for every chart


@dataclass(frozen=True)
class Layout:
    """How much room a chart has; `wide` for a column of text, `narrow` for a phone."""

    name: Literal["wide", "narrow"]
    width: int
    labels_above: bool  # row labels over the marks instead of beside them


WIDE = Layout("wide", 680, labels_above=False)
NARROW = Layout("narrow", 350, labels_above=True)


def _config(size: int) -> Spec:
    text = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": size, "titleFontSize": size}
    return {
        "font": FONT,
        "view": {"stroke": None},
        "mark": {"aria": False},
        "axis": {
            **text,
            "aria": False,
            "labelColor": "var(--pb-soft)",
            "titleColor": "var(--pb-soft)",
            "titleFontWeight": "normal",
            "domainColor": "var(--pb-line)",
            "gridColor": "var(--pb-line)",
            "tickColor": "var(--pb-line)",
            "tickSize": 4,
            "labelPadding": 4,
        },
        "text": {"font": FONT, "fontSize": size, "fill": "currentColor"},
    }


def chart(layers: Sequence[Spec], width: int, height: float, padding: Spec) -> Spec:
    """A chart of `width` pixels in all, padding included; nothing is laid out by Vega."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": None,
        "autosize": {"type": "none"},
        "padding": padding,
        "width": width - padding["left"] - padding["right"],
        "height": height,
        "config": _config(SIZE),
        "layer": list(layers),
    }


def layer(mark: Spec, values: Sequence[Spec], **encoding: Spec) -> Spec:
    """One layer: a mark over rows, and what of a row each channel shows.

    Where rows have a `say`, each mark carries it as `data-say`: what figures.js tells of the mark
    under the pointer or the keyboard.
    """
    if any("say" in row for row in values):
        mark = {**mark, "aria": True}
        encoding = {**encoding, "description": {"field": "say"}}
    return {"data": {"values": list(values)}, "mark": mark, "encoding": encoding}


def pixels(field: str) -> Spec:
    """A channel whose field is already in pixels."""
    return {"field": field, "type": "quantitative", "scale": None, "axis": None}


def scaled(field: str, top: float, title: str | None, ticks: int = 5) -> Spec:
    """A horizontal channel from nought to `top`, with its axis below."""
    axis: Spec = {"title": title, "tickCount": ticks, "grid": False, "format": ",.6~g"}
    axis |= {"titleAlign": "right", "titleAnchor": "end", "titlePadding": 4}
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"domain": [0, top], "nice": False, "zero": True},
        "axis": axis,
    }


@lru_cache(maxsize=512)
def _compiled(text: str) -> str:
    key = hashlib.sha256(f"{version('vl-convert-python')}\n{text}".encode()).hexdigest()[:24]
    kept = CACHE / f"{key}.svg"
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    drawn = vl_convert.vegalite_to_svg(json.loads(text))
    with suppress(OSError):  # a cache that cannot be written costs time, nothing else
        kept.parent.mkdir(parents=True, exist_ok=True)
        torn = kept.with_suffix(f".{os.getpid()}")
        torn.write_text(drawn, encoding="utf-8")
        torn.replace(kept)
    return drawn


def svg(spec: Spec, name: str, title: str, description: str, css_class: str) -> str:
    """Compile a specification to one inline `<svg>` with a title, a description and no style.

    Args:
        spec: from one of the functions above.
        name: an id, unique on the page.
        title: what the chart shows, in a few words.
        description: what it shows, in a sentence or two, for those who cannot see it.
        css_class: class of the `<svg>`.
    """
    drawn = _compiled(json.dumps(spec, sort_keys=True, ensure_ascii=False))
    body = re.sub(r"\A.*?<svg[^>]*>", "", drawn, count=1, flags=re.DOTALL)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
    assert size is not None
    width, height = size.groups()
    return (
        f'<svg class="{css_class}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>{_bare(body)}'
    )


def _bare(body: str) -> str:
    """Drop what the page decides itself (fonts), what only Vega's runtime reads, and empty shapes.

    Places are rounded to a hundredth of a pixel: a chart's bytes are mostly digits.
    """
    body = _NEVER_SEEN.sub("", body)
    body = body.replace(' aria-label="', ' data-say="')
    body = _NOT_OURS.sub("", body)
    body = _PLACES.sub(lambda found: _DIGITS.sub(_rounded, found[0]), body)
    body = _CIRCLE.sub(r'<circle\1 r="\2"', body)
    while (emptied := body.replace("<g></g>", "")) != body:
        body = emptied
    return re.sub(r"\n\s*", "", body)


_NEVER_SEEN = re.compile(
    r'<path[^>]*(?: d="M0,0h0v0h0Z"| display="none"|class="background")[^>]*/>'
)
_NOT_OURS = re.compile(
    r' (?:(?:class|font-family|aria-[a-z]+|role|pointer-events)="[^"]*"'
    r'|(?:opacity|stroke-width)="1"|stroke-miterlimit="10"|transform="translate\(0,0\)"'
    rf'|font-size="{SIZE}px"|font-weight="normal"|text-anchor="start")'
    r'|(?<=") stroke-width="2"(?=/)'  # of a point, which has no stroke
)
_CIRCLE = re.compile(r'<path([^>]*) d="M([\d.]+),0A\2,\2,0,1,1,-\2,0A\2,\2,0,1,1,\2,0"')
_PLACES = re.compile(r' (?:d|transform|[xy][12]?|width|height)="[^"]*"')
_DIGITS = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def _rounded(found: re.Match[str]) -> str:
    return f"{round(float(found[0]), 2) + 0:g}"
