"""Author's text: bare numerals refused at their place, Markdown rendered without raw HTML."""

import html
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proofbook.generator.content import prose
from proofbook.generator.content.yaml_source import parse
from proofbook.generator.printing.markdown import render


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("It took 10 steps.", "10"),
        ("Up to 2.5GB of it.", "2.5GB"),
        ("A rate of 1e-5.", "1e-5"),
        ("At 50% of it.", "50%"),
        ("A 2-way split.", "2-way"),
        ("It is x4 faster.", "x4"),
        ("Some ½ of it.", "½"),
        ("Some ٣ of it.", "٣"),
        ("Hidden &#49; of it.", "49"),
        ("It took\n37) steps.", "37"),
        ("It took\n37. It took", "37"),
        ("[1 run](trace.html)", "1"),
        ("Some ２ of it.", "２"),
    ],
)
def test_a_bare_numeral_is_refused(text, word):
    (fault,) = prose.faults(text, "prose")
    assert fault.message.startswith(f"bare numeral {word!r}")
    assert word[0] in text[fault.offset :]


def test_a_number_with_a_parenthesis_begins_an_item_of_a_text_and_none_of_a_page():
    assert prose.faults("1) It took long.\n", "prose") == ()
    assert [fault.offset for fault in prose.faults("37) ms it took.\n", "page")] == [0]
    assert prose.faults("1. It took long.\n", "page") == ()


def test_a_sequence_is_one_mistake_in_each_line_of_a_text():
    sequence = "Sort [[5, 2], [9, 5]] by\n  1,000."
    first, second = prose.faults(sequence, "prose")
    assert first.message.startswith("bare numerals '5', '2', '9'; ")
    assert second.message.startswith("bare numeral '1,000'; ")
    assert [sequence[one.offset] for one in (first, second)] == ["5", "1"]
    assert prose.faults("Sort `[[5, 2], [9, 5]]`.", "prose") == ()


def test_code_shows_braces_after_a_backslash_and_evaluates_others():
    text = r"`$\{{ user }}` and `{{ user }}`"
    assert prose.faults(text, "line") == ()
    (expression,) = prose.expressions(text)
    assert expression == (text.rindex("user"), "user")
    shown = render(text, lambda _: "12", lambda _: "12", inline=True)
    assert re.findall("<code[^>]*>(.*?)</code>", shown) == ["${{ user }}", "12"]
    assert prose.in_code(text, expression.start)


@pytest.mark.parametrize(
    "word",
    [
        "twice", "Twice", "half", "halves", "double", "doubled", "doubling", "tripled", "thrice",
        "tenfold", "ten-fold", "hundredfold", "quarter", "a third less", "a third slower",
        "two thirds", "third of",
        "dozen", "five", "Seven", "twelve", "hundred", "thousands", "million", "percent",
        "a tenth", "twofold", "halve", "three times as fast", "four times the",
        "quadruples", "trebled", "a thousandth", "two hundredths", "eleventh", "a twelfth",
        "several-fold", "a third as much", "two times over", "several times faster", "a few hours",
        "a couple of", "a score of times", "III times", "a factor of three", "point two",
        "sextupled", "several GiB", "a third,", "many times more", "percentage points",
    ],
)  # fmt: skip
def test_a_spelled_quantity_is_refused(word):
    found = prose.faults(f"It is {word} it.", "prose")
    assert any("spelled quantity" in fault.message for fault in found)


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
        "Two:\n\n- a\n  1) `x`\n  2) `y`\n\n!!! note\n\n    1. a\n    2. b\n",
        "[a](../b.html#c), [b](#d), [c](e/f:g), <mailto:a@b.org> and [d][e].\n\n[e]: https://a.org\n",
        "```\nx = 5\n```\n",
        "Two times overlap; a step is run three times.",
        "half-precision and double precision name formats.",
        "double hashing and double-buffering are names of methods.",
        "It has none, and it is zero.",
        "A third pattern follows. Several ranks wait, some days later.",
        "How many times more? As many times as there are ranks.",
        "`r = n − 1`, `x[37] = y`, `n = 1`, `2 × {{ a.b }}`, `16 B × parameters`, `--split x=3`.",
        "{{ a.b }} as a share, {{ a.b }} hosts, {{ a.b }} times, {{ a.b }} a second time.",
    ],
)
def test_names_code_expressions_and_small_words_are_not_refused(text):
    assert prose.faults(text, "prose") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a {{ b", "the other half of the expression is missing"),
        ("How does __init__ read?", "name '__init__'; put it in `code`"),
        ("\ue000\ue100\ue001", "invisible character"),
        ("fi\u200bve ranks", "invisible character"),
        ("![](x.png)", "an image needs its file and words for it"),
        ("a $ b", "dollar '$'"),
        ("It took `t = 37 ms`.", "quantity '`t = 37 ms`'"),
        ("It took `ms=37`.", "quantity"),
        ("It is `speedup == 3.7`.", "quantity"),
        ("It is `speedup: 3.7`.", "quantity"),
        ("It is `f(ms=37)`, or `t = (37)`.", "'`t = (37)`'"),
        ("It `took 37 ms here`.", "quantity"),
        ("It took {{ a.seed }} ms.", "unit 'ms'"),
        ("It took {{ a.seed }}ms.", "unit 'ms'"),
        ("It took **{{ a.seed }}** seconds.", "unit 'seconds'"),
        ("It took ${{ a.seed }}\\,\\text{ms}$.", "unit 'ms'"),
        ("It does {{ a.seed }} per second.", "unit 'per second'"),
        ("It is &frac12; of it.", "character reference '&frac12;'"),
        ("It is took37ms.", "bare numeral 'took37ms'"),
        ("|a|b|\n|---|---|\n|x|{{ a.b | median }}|{{ a.c }}|\n", "3 cells below a head of 2"),
        ("|a|b|\n|---|---|\n|x|`y|{{ a.c }}`|\n", "3 cells below a head of 2"),
    ],
)
def test_what_text_may_not_hold(text, said):
    assert any(said in fault.message for fault in prose.faults(text, "prose"))


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("[x](javascript:a)", "javascript"),
        ("[x]( JaVaScript:a)", "JaVa"),
        ("It is [x](java&#115;cript:a).", "java&"),
        ("[x](&#x6A;avascript&colon;a)", "&#x6A;"),
        ("[x](javascript\\:a)", "javascript"),
        ("[x](<java\tscript:a>)", "java"),
        ("[x](<java&Tab;script:a>)", "java"),
        ("It is [x][y].\n\n[y]: javascript:a\n", "javascript"),
        ("It is [y].\n\n[y]:\n  <vbscript:a>\n", "vbscript"),
        ("[w]: http://a.org", "http:"),
        ("<javascript:a>", "javascript"),
        ("<http://a.org>", "http:"),
        ("![x](data:text/html,a)", "data:"),
        ("[![x](y.png)](data:text/html,a)", "data:"),
        ("|a|b|\n|---|---|\n|[x](vbscript:a)|c|\n", "vbscript"),
        ("A note[^a].\n\n[^a]: It is [x](javascript:a).\n", "javascript"),
        ("!!! note\n\n    [x](javascript:a)\n", "javascript"),
        ("[x](file:///a)", "file:"),
        ("[x](//a.org)", "//a"),
        ("[x](/root.html)", "/root"),
        ("[x](\\\\a.org)", "\\"),
        ("[x]({{ a.b }})", "{{ a.b"),
        ("[x](https://{{ a.b }}.org)", "https:"),
    ],
)
@pytest.mark.parametrize("mark", ["prose", "line", "page"])
def test_a_link_to_anything_but_a_relative_address_https_or_mail_is_refused(text, at, mark):
    said = "; links are relative, https or mailto"
    faults = [fault for fault in prose.faults(text, mark) if fault.message.endswith(said)]
    assert [text[fault.offset :].startswith(at) for fault in faults] == [True], faults
    shown = render(text, str, str, inline=mark == "line")
    assert not re.search("(href|src)=.(?!y.png|#)", shown), shown


@given(st.lists(st.text("ab 'é:#", min_size=1, max_size=8), min_size=1, max_size=5))
def test_places_survive_every_style_the_dumper_writes(words):
    text = " ".join(words).strip() + " 77"
    for style in ("'", '"', "|", ">"):
        written = yaml.dump({"k": text}, default_style=style, width=20, allow_unicode=True)
        source = parse("a.yml", written)
        value = source.document["k"]
        line, column = source.place_in_text(("k",), value.index("77"))
        assert written.splitlines()[line - 1][column - 1 :].startswith("77")


@given(st.text("<>&\"'ab{}[]()!*_`\n #-", max_size=60))
def test_only_markdowns_own_tags_come_out(text):
    if prose.faults(text, "prose") or prose.expressions(text):
        return
    rendered = render(text, str, str, inline=False).replace('<span class="pb-keep">', "")
    allowed = {"p", "em", "strong", "code", "pre", "a", "ul", "ol", "li", "br", "blockquote", "img"}
    tags = {tag.strip("</> ").split(" ")[0] for tag in re.findall(r"<[^>]*>", rendered)} - {"span"}
    assert tags <= allowed, html.unescape(rendered)
