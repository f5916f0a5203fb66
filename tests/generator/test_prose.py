"""Author's text: bare numerals refused at their place, Markdown rendered without raw HTML."""

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.content import prose
from generator.content.yaml_source import parse


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("It took 10 steps.", "10"),
        ("It took 1,000 steps.", "1,000"),
        ("Up to 2.5GB of it.", "2.5GB"),
        ("It is 10x faster.", "10x"),
        ("The 3rd time.", "3rd"),
        ("A rate of 1e-5.", "1e-5"),
        ("At 50% of it.", "50%"),
        ("A 2-way split.", "2-way"),
        ("Version-3 of it.", "Version-3"),
        ("Some ½ of it.", "½"),
        ("Some ٣ of it.", "٣"),
        ("Chapter Ⅳ of it.", "Ⅳ"),
        ("Hidden &#49; of it.", "49"),
        ("[1 run](trace.html)", "1"),
        ("*7*", "7"),
        ("Some ２ of it.", "２"),
        ("It is x10 faster.", "x10"),
        ("A 40Gbit link.", "40Gbit"),
        ("After 3hours.", "3hours"),
    ],
)
def test_a_bare_numeral_is_refused(text, word):
    (fault,) = prose.faults(text)
    assert fault.message.startswith(f"bare numeral {word!r}")
    assert word[0] in text[fault.offset :]


def test_an_admonition_is_refused_and_code_may_show_one():
    (fault,) = prose.faults("Before.\n\n!!! warning\n    Mind this.")
    assert (fault.offset, fault.message[:19]) == (9, "!!! warning prints ")
    assert prose.faults("Why!!! Really???\n\n```text\n!!! warning\n```\n\nWith `!!! note`.") == ()


@pytest.mark.parametrize(
    "word",
    [
        "twice", "Twice", "half", "halves", "double", "doubled", "doubling", "tripled", "thrice",
        "tenfold", "ten-fold", "hundredfold", "quarter", "a third less", "a third slower",
        "two thirds", "third of",
        "dozen", "five", "Seven", "twelve", "hundred", "thousands", "million", "percent",
        "a tenth", "twofold", "halve", "three times as fast", "four times the",
    ],
)  # fmt: skip
def test_a_spelled_quantity_is_refused(word):
    assert any("spelled quantity" in fault.message for fault in prose.faults(f"It is {word} it."))


@pytest.mark.parametrize(
    "text",
    [
        "One run, two ranks, three layers, four stages.",
        "fp32, bf16, 1F1B, FSDP2, A100, int8 and sha256 are names.",
        "ZeRO-1 shards the optimizer state, and GPT-2 is a model.",
        "On behalf of a manifold; a folder unfolds.",
        "Run `torchrun --nproc-per-node 2` or ``a ` 3 ``.",
        "Read [the notes](https://pytorch.org/docs/2.13/x.html) or <https://a.org/2020>.",
        "{{ ddp.ddp.epochs[0].loss }} after {{ epoch(1) }}.",
        "1. first\n2. second\n",
        "```\nx = 5\n```\n",
        "Two times overlap; a step is run three times.",
        "half-precision and double precision name formats.",
        "It has none, and it is zero.",
        "A third pattern follows.",
    ],
)
def test_names_code_expressions_and_small_words_are_not_refused(text):
    assert prose.faults(text) == ()


def test_a_numbered_list_has_no_place_in_one_line():
    assert prose.faults("1. first", inline=True)
    assert 'start="' not in prose.render("7. seventh", str, inline=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{% for x in y %}", "{% is not allowed"),
        ("{# note #}", "{# is not allowed"),
        ("a {{ b", "{{ without its other half"),
        ("a }} b", "}} without its other half"),
        ("a {{ }} b", "is empty"),
        ("\ue000\ue100\ue001", "private-use"),
        ("fi\u200bve ranks", "an invisible character"),
        ("[x](http://a.org)", "links are relative or https"),
        ("[x](//a.org)", "links are relative or https"),
        ("[x](/root.html)", "links are relative or https"),
        ("[x](mailto:a@b.org)", "links are relative or https"),
        ("[x]({{ a.b }})", "target holds no expression"),
        ('[x](a.html "t {{ a.b }}")', "takes no title"),
    ],
)
def test_what_text_may_not_hold(text, said):
    assert any(said in fault.message for fault in prose.faults(text))


YAML = """\
plain: It took 10 steps
  and 11 more
single: 'It''s 12 of it'
double: "It\\tis \\"13\\" or \\u0031\\x34"
folded: >-
  A line with 15 in it
  and 16

  and 17 after a gap
literal: |2
    indented 18
  and 19
list:
  - {deep: é 20}
"""


@pytest.mark.parametrize(
    ("path", "places"),
    [
        (("plain",), [(1, 16), (2, 7)]),
        (("single",), [(3, 16)]),
        (("double",), [(4, 19), (4, 10)]),
        (("folded",), [(6, 15), (7, 7), (9, 7)]),
        (("literal",), [(11, 14), (12, 7)]),
        (("list", 0, "deep"), [(14, 14)]),
    ],
)
def test_a_fault_is_placed_to_the_column_in_every_style_of_yaml(path, places):
    source = parse("a.yml", YAML)
    text = source.document
    for part in path:
        text = text[part]
    found = [source.place_in_text(path, fault.offset) for fault in prose.faults(text)]
    assert found == places


@given(st.lists(st.text("ab 'é:#", min_size=1, max_size=8), min_size=1, max_size=5))
def test_places_survive_every_style_the_dumper_writes(words):
    import yaml

    text = " ".join(words).strip() + " 77"
    for style in ("'", '"', "|", ">"):
        written = yaml.dump({"k": text}, default_style=style, width=20, allow_unicode=True)
        source = parse("a.yml", written)
        value = source.document["k"]
        line, column = source.place_in_text(("k",), value.index("77"))
        assert written.splitlines()[line - 1][column - 1 :].startswith("77")


def test_values_pass_through_markdown_untouched():
    fills = {"a.b": "<b>*x*_y_</b>"}
    text = "See *{{ a.b }}* and `{{ a.b }}`"
    assert prose.render(text, fills.__getitem__, inline=True) == (
        "See <em><b>*x*_y_</b></em> and <code><b>*x*_y_</b></code>"
    )


@pytest.mark.parametrize(
    ("name", "parted"),
    [
        (
            "accumulation.reduced_each.timing.step",
            "accumulation.<wbr>reduced_each.<wbr>timing.<wbr>step",
        ),
        (
            "ScheduleInterleavedZeroBubbleOfStages",
            "Schedule<wbr>Interleaved<wbr>Zero<wbr>Bubble<wbr>Of<wbr>Stages",
        ),
        (
            "TORCH_NCCL_ASYNC_ERROR_HANDLING_TIMEOUT",
            "TORCH_<wbr>NCCL_<wbr>ASYNC_<wbr>ERROR_<wbr>HANDLING_<wbr>TIMEOUT",
        ),
        ("ScheduleInterleavedZeroBubble", "ScheduleInterleavedZeroBubble"),
        ("DistributedDataParallel", "DistributedDataParallel"),
        ("x=1", "x=1"),
    ],
)
def test_a_long_name_in_code_breaks_where_its_parts_meet(name, parted):
    assert prose.render(f"`{name}`", str, inline=True) == f"<code>{parted}</code>"


def test_a_name_of_the_field_breaks_at_no_hyphen():
    shown = prose.render("With ZeRO-1, gradients", str, inline=True)
    assert shown == 'With <span class="pb-keep">ZeRO-1</span>, gradients'


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        ("2 root", '<code class="pb-keep">2 root</code>'),
        ("M / n", "<code>M_/_n</code>"),
        (
            "parameters × stored + (1 − 1 / ranks) × unit",
            "<code>parameters_×_stored + (1_−_1_/_ranks)_×_unit</code>",
        ),
        ("samples × context × width × 4 B", "<code>samples × context × width × 4_B</code>"),
    ],
)
def test_a_formula_breaks_between_its_terms_and_a_short_one_nowhere(formula, shown):
    assert prose.render(f"`{formula}`", str, inline=True).replace("\u00a0", "_") == shown


@given(st.text(max_size=40))
def test_markup_in_text_is_shown_as_text(text):
    rendered = prose.render(f"<script>{text}</script>\n\n<b onclick=x>", str, inline=False)
    assert "<script" not in rendered
    assert "<b " not in rendered


@given(st.text("<>&\"'ab{}[]()!*_`\n #-", max_size=60))
def test_only_markdowns_own_tags_come_out(text):
    if prose.faults(text) or prose.expressions(text):
        return
    rendered = prose.render(text, str, inline=False)
    allowed = {"p", "em", "strong", "code", "pre", "a", "ul", "ol", "li", "br", "blockquote"}
    tags = {tag.strip("</> ").split(" ")[0] for tag in _tags(rendered)}
    assert tags <= allowed, html.unescape(rendered)


def _tags(rendered):
    import re

    return re.findall(r"<[^>]*>", rendered)


def test_images_are_not_loaded_from_anywhere():
    assert "<img" not in prose.render("![x](https://a.org/x.png)", str, inline=False)
