"""Where a value cannot open, as in an `<option>` or a drawing, it opens beside it, on that page."""

import html
import re

import pytest

from proofbook.generator.printing.folio import Folio
from proofbook.generator.values import units
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import Origin, Value
from tests.generator import scenes
from tests.popovers import popovers_of

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


# --- values in HTML: each opens to its run, and says where that was no plain run of this mach


PEAK = "tiny_memory.whole.ranks[0].memory.peak_bytes"
STEP = "median(tiny_training.averaged.timing.step)"


@pytest.mark.parametrize(
    ("happens", "expression", "kind", "nature"),
    [
        (scenes.a_run_was_paced, PEAK, "measured", "paced"),
        (scenes.a_run_was_simulated, PEAK, "simulated", "simulated"),
        (scenes.ranks_shared_cores, STEP, "measured", "oversubscribed"),
        (scenes.ranks_shared_cores, f"{STEP} / 2", "computed", "oversubscribed"),
    ],
)
def test_a_number_says_its_runs_nature_and_opens_to_it(copy, happens, expression, kind, nature):
    happens(copy)
    evidence = Evidence(copy.load())
    text = Folio(evidence, evidence)
    link = str(text.expression(expression))
    assert f"pb-{kind}" in link
    assert f'<small class="pb-nature">{nature}</small>' in link
    assert popovers_of(text.sources.block())[0].nature == nature


def test_what_is_computed_of_published_rates_is_not_said_to_be_simulated(real):
    text = Folio(Evidence(real), Evidence(real))
    link = str(text.expression("plan_steps.a100.ranks[0].measures.num_rows"))
    assert "pb-computed" in link
    assert "pb-nature" not in link
    assert not popovers_of(text.sources.block())[0].nature


def test_a_value_in_the_words_of_a_link_opens_nothing(evidence):
    page, peak = Folio(evidence, evidence), f"{{{{ {PEAK} }}}}"
    plain = f'<span class="pb-label">{evidence.value(PEAK)}</span>'
    linked, rest = str(page.line(f"[Its {peak}](deep.html), {peak}")).split("</a>, ")
    assert linked == f'<a href="deep.html">Its {plain}'
    assert rest.startswith('<a class="pb-value')
    assert page.in_link.line(peak) == plain


def test_text_from_a_trace_is_escaped(evidence):
    page = Folio(evidence, evidence)
    origin = Origin('"<m>', "e", 'r"', "printed[0]")
    value = Value("<script>1</script>", units.TEXT, "measured", "<f>", origin=origin)
    assert "<script>1" not in page.show(value) + page.sources.block()
    assert page.sources.block().count("<") == 2, "no text of a trace ends the block of data"
    assert page.show(value).count('"') == 6
    assert popovers_of(page.sources.block())[0].shown == "<script>1</script>"
