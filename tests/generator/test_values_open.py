"""Where a value cannot open, as in an `<option>` or a drawing, it opens beside it, on that page."""

from __future__ import annotations

import html
import re

import pytest

VALUE = re.compile(r'<(?:button|a)[^>]*class="pb-value[^>]*>(.*?)</(?:button|a)>', re.DOTALL)
NATURE = re.compile(r" <small.*?</small>")


def said(markup):
    return html.unescape(re.sub(r"<[^>]+>", "", NATURE.sub("", markup))).strip()


def opened(markup):
    return {one for one in map(said, VALUE.findall(markup)) if re.search(r"\d", one)}


SIZES = {"µs": 1e-6, "ms": 1e-3, "s": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size(text):
    """A number in base units, of which a plain one is in none; None for other texts."""
    found = re.fullmatch(r"([−\d,.]+)\s?(\S*)", text)
    return found and float(re.sub("−", "-", found[1].replace(",", ""))) * SIZES.get(found[2], 1)


def says(answer, text):
    """Whether a text prints a value of an answer; an end of a slider is in the unit of its item."""
    wanted = size(text)
    sizes = [one for one in map(size, opened(answer)) if one is not None]
    return any(one in text for one in opened(answer)) or (
        wanted is not None and any(one == pytest.approx(wanted, rel=0.01) for one in sizes)
    )


def items(page):
    """What each item of a page asks, and the answer below it."""
    for part in re.split(r'(?=<div class="pb-question")', page)[1:]:
        asked, _, rest = part.partition("</form>")
        yield asked, rest.partition('pb-answer"')[2]


def without_opening(asked, pattern):
    return {one for one in map(said, re.findall(pattern, asked)) if re.search(r"\d", one)}


@pytest.mark.parametrize(
    "pattern",
    [
        r"<option[^>]*>(.*?)</option>",
        r'<(?:p|td)[^>]*>(?:<span>)?(<span class="pb-label">.*?</span>)',
    ],
    ids=["options", "cells and ends of sliders"],
)
def test_a_value_that_a_form_only_prints_opens_in_the_items_answer(rendered, pattern):
    num = 0
    for path, page in rendered.items():
        for asked, answer in items(page):
            for text in without_opening(asked, pattern):
                assert says(answer, text), f"{path}: {text}"
                num += 1
    assert num
