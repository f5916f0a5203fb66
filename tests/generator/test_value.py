"""Values: arithmetic that keeps unit, kind, formula and inputs, and one rule of printing."""

import html
import re
from types import SimpleNamespace

import pytest

from proofbook.generator.printing.folio import Folio
from proofbook.generator.values import units
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.paths import Evaluation, Node
from proofbook.generator.values.units import OF_FIELDS, Form
from proofbook.generator.values.value import ExpressionError, Origin, Value
from proofbook.runners.traces.tolerance import MOST_SPREAD
from tests.popovers import popovers_of

BYTES, COUNT, LOSS, PLAIN = units.BYTES, units.COUNT, units.LOSS, units.PLAIN
RATIO, SECONDS, SHARE, TEXT = units.RATIO, units.SECONDS, units.SHARE, units.TEXT


def read_off(number, unit=PLAIN, name="a.b.c", kind="measured"):
    experiment, run, field = name.split(".")
    return Value(number, unit, kind, name, origin=Origin("desk", experiment, run, field))


def test_constants_take_part_in_a_formula_but_are_no_input():
    value = 2 * read_off(10, BYTES) + read_off(1, BYTES, "a.b.d")
    assert (value.number, value.unit, value.formula) == (21, BYTES, "2 * a.b.c + a.b.d")
    assert [leaf.formula for leaf in value.leaves] == ["a.b.c", "a.b.d"]


@pytest.mark.parametrize(
    ("left", "right"),
    [(BYTES, SECONDS), (BYTES, COUNT), (SHARE, LOSS), (COUNT, SHARE), (TEXT, COUNT)],
)
def test_sums_demand_equal_units(left, right):
    number = "word" if left == TEXT else 1
    for operate in (lambda a, b: a + b, lambda a, b: a - b):
        with pytest.raises(ExpressionError):
            operate(read_off(number, left), read_off(1, right))


def test_a_constant_joins_a_sum_of_plain_numbers_but_not_of_bytes():
    assert (read_off(4, COUNT) - 1).number == 3
    assert (1 - read_off(0.25, SHARE)).unit == SHARE
    with pytest.raises(ExpressionError, match="bytes and plain"):
        read_off(4, BYTES) + 1


@pytest.mark.parametrize(
    ("left", "sign", "right", "unit"),
    [
        (BYTES, "*", COUNT, BYTES),
        (BYTES, "/", COUNT, BYTES),
        (BYTES, "/", BYTES, RATIO),
        (BYTES, "/", SECONDS, units.Unit(1, -1)),
        (COUNT, "*", COUNT, COUNT),
        (COUNT, "/", COUNT, RATIO),
        (SHARE, "*", RATIO, SHARE),
        (RATIO, "*", SECONDS, SECONDS),
        (LOSS, "/", LOSS, RATIO),
        (LOSS, "/", COUNT, LOSS),
        (OF_FIELDS["FLOP"], "/", OF_FIELDS["FLOP/s"], SECONDS),
        (OF_FIELDS["bytes"], "/", OF_FIELDS["bytes/s"], SECONDS),
        (OF_FIELDS["FLOP/s"], "/", OF_FIELDS["bytes/s"], OF_FIELDS["FLOP/byte"]),
        (OF_FIELDS["bits/s"], "/", OF_FIELDS["bits/byte"], OF_FIELDS["bytes/s"]),
        (OF_FIELDS["bytes"], "*", OF_FIELDS["seconds/byte"], SECONDS),
    ],
)
def test_units_combine(left, sign, right, unit):
    x, y = read_off(6, left), read_off(2, right)
    assert (x * y if sign == "*" else x / y).unit == unit


def test_dividing_by_zero_and_growing_without_end_are_errors():
    with pytest.raises(ExpressionError, match="divides by zero"):
        read_off(1) / read_off(0)
    with pytest.raises(ExpressionError, match="not finite"):
        read_off(1e200) * read_off(1e200)
    with pytest.raises(ExpressionError, match="not finite"):
        read_off(10**200) * read_off(10**200)


def test_words_are_not_calculated_with():
    for operate in (lambda v: v * 3, lambda v: v + v, lambda v: -v):
        with pytest.raises(ExpressionError, match="text"):
            operate(read_off("completed", TEXT))
    with pytest.raises(ExpressionError, match="'x' is not a number"):
        read_off(1) + "x"


NBSP = "\u00a0"


@pytest.mark.parametrize(
    ("number", "unit", "form", "text"),
    [
        (640, BYTES, Form(), "640 B"),
        (1536, BYTES, Form(), "1.50 KiB"),
        (447_713_280, BYTES, Form(), "427 MiB"),
        (1023.9 * 2**20, BYTES, Form(), "1.00 GiB"),
        (3 * 2**40, BYTES, Form(), "3.00 TiB"),
        (224_112_000, BYTES, Form(way="exact"), "224,112,000 bytes"),
        (-2048, BYTES, Form(), "−2.00 KiB"),
        (0.00732, SECONDS, Form(), "7.32 ms"),
        (0.000012, SECONDS, Form(), "12.0 µs"),
        (0, SECONDS, Form(), "0 s"),
        (0.8812, SHARE, Form(), "88.1%"),
        (999_999, COUNT, Form(), "999,999"),
        (55_016_010, COUNT, Form(), "55.0 million"),
        (12, COUNT, Form(digits=1), "12"),
        (0.412, LOSS, Form(), "0.4120"),
        (5.2e-7, RATIO, Form(), "5.20 × 10⁻⁷"),
        (1.4667, RATIO, Form(way="times"), "1.47 times"),
        (1.5, RATIO, Form(way="percent"), "150%"),
        (-0.0004, RATIO, Form(way="error"), "−0.0400%"),
        (-2.67e-7, RATIO, Form(way="error"), "< 0.001%"),
        (1e-5, PLAIN, Form(way="written"), "1 × 10⁻⁵"),
        (2026, units.ORDINAL, Form(), "2026"),
        (2e6, units.Unit(1, -1), Form(), "2.00 MB/s"),
        (9.9e14, units.BY_NAME["FLOP/s"], Form(), "990 TFLOP/s"),
        (4e8, units.OF_FIELDS["bits/s"], Form(), "400 Mbit/s"),
        (295.4, units.OF_FIELDS["FLOP/byte"], Form(), "295 FLOP/B"),
        (100_572_780_498.0, units.Unit(0, -1), Form(), "101 billion per second"),
        (3.39e38, PLAIN, Form(), "3.39 × 10³⁸"),
        (10**15, COUNT, Form(), "1.00 × 10¹⁵"),
    ],
)
def test_every_page_prints_by_one_rule(number, unit, form, text):
    value = Value(number, unit, "measured", "a.b.c", form=form)
    assert str(value) == text.replace(" ", NBSP)


def test_a_value_that_rounding_decides_is_printed_with_two_digits_unless_its_author_says_more(book):
    spread = {"epochs.loss": 2 * MOST_SPREAD, "validation.loss": MOST_SPREAD / 2}
    averaged = book.traces["tiny_training"].trace.runs["averaged"]
    run = averaged.model_copy(update={"spread": spread})
    shown = SimpleNamespace(trace=SimpleNamespace(runs={"averaged": run}), nature="")
    node = Node(run, (), "a.averaged", Evaluation(), Origin("a machine", "a", "averaged"), shown)
    loss = node.step("epochs").step(0).step("loss")
    assert str(loss) == f"{run.epochs[0].loss:.1f}"
    assert str(loss.formatted(digits=4)) == f"{run.epochs[0].loss:.3f}"
    assert str(node.step("validation").step("loss")) == f"{run.validation.loss:.3f}"


# --- on pages: where a value cannot open, as in an `<option>`, it opens in the answer below


VALUE = re.compile(r'<(?:button|a)[^>]*class="pb-value[^>]*>(.*?)</(?:button|a)>', re.DOTALL)
NATURE = re.compile(r" <small.*?</small>")


def said(markup):
    return html.unescape(re.sub(r"<[^>]+>", "", NATURE.sub("", markup))).strip()


def opened(markup):
    return {one for one in map(said, VALUE.findall(markup)) if re.search(r"\d", one)}


def items(page):
    """What each item of a page asks, and the answer below it."""
    for part in re.split(r'(?=<div class="pb-question")', page)[1:]:
        asked, _, rest = part.partition("</form>")
        yield asked, rest.partition('pb-answer"')[2]


@pytest.mark.parametrize(
    "pattern",
    [r"<option[^>]*>(.*?)</option>", r'<td[^>]*>(?:<span>)?(<span class="pb-label">.*?</span>)'],
    ids=["options", "cells"],
)
def test_a_value_that_a_form_only_prints_opens_in_the_items_answer(rendered, pattern):
    num = 0
    for path, page in rendered.items():
        for asked, answer in items(page):
            for text in filter(re.compile(r"\d").search, map(said, re.findall(pattern, asked))):
                assert any(one in text for one in opened(answer)), f"{path}: {text}"
                num += 1
    assert num


# --- values in HTML: each opens to its run, and says where that was no plain run of this mach


PEAK = "tiny_memory.whole.ranks[0].memory.peak_bytes"


def test_what_is_computed_of_published_rates_is_not_said_to_be_simulated(real):
    text = Folio(Evidence(real), Evidence(real))
    link = str(text.expression("plan_order.a100.ranks[0].measures.num_rows"))
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
