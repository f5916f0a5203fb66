"""Forms of a quantity that somebody typed: each is refused, or allowed for the reason given."""

import pytest

from proofbook.generator.content import prose

COUNT = "{{ tiny_training.averaged.settings.num_epochs }}"
TIME = "{{ tiny_training.averaged.timing.step|median }}"
BYTES = "{{ tiny_memory.whole.model.bytes }}"
LEARN, EXPERIMENT = "topics/averaging/learn.yml", "topics/sharding/experiment.yml"
WORKED, COST = "topics/averaging/worked.yml", "topics/averaging/cost.yml"
DRAWN, PAGE = "topics/averaging/quiz-drawn.yml", "pages/marks.md"
IDEA = "After each backward pass, every rank takes the mean of all gradients."
MEAN, TOTAL = "topics/averaging/code/mean.py", "    total = sum(gradients)"

REFUSED = """
37|1,000|1 000|1'000|2.5|2,5|.5|−3|±3|<3|#3|3rd|21st|3x|3×|x4|3-fold|3:1|3/4|3%|3‰|3 per cent|10^3
10**3|1e3|0x1F|0b101|37ms|37 ms|2.5GB|took37ms|2.13.0|2026-11-01|12:30|1990s|5–10|37°|2-way|3k|3bn
3²|x₂|½|⅔|⑦|Ⅳ|٣|３|七|XII|IV times|&#51;7|&#189;|<b>37</b>|**37**|[37 ms](https://a.org)
[it](https://a.org "37 ms")|# 37|> 37|- 37|eleven|twenty-one|a thousand
a dozen|a couple of|a handful of|twice|thrice|twofold|ten-fold|tripling|half a|halved|doubled
one half|a quarter|quartered|quartering|one third|one fourth|One-fourth|three fourths|two-thirds
a fifth|a third of|a third less|a tenth|point five|one in four|three out of four|nine in ten
two-to-one|every second step|each third step|double-digit|a factor of two|an order of magnitude
two times as fast|four times quicker than one|many times more|per cent|percentage points
two seconds|a few hours|several GiB|a full second|one second|a whole minute|took an hour|one byte
a millisecond|a gigabyte per step|one MiB|sub-second|multi-gigabyte|a decade|two dollars|$37$
$x = 37$|$37\\,\\text{ms}$|$\\frac{3}{4}$|$x \\approx 3$|$\\text{half}$|`37 ms`|`t = 37 ms`
`took 37 ms`|`37x`|`3.7`|`37/40`|`37 of 40`|`99%`|`ranks: 4`|`n = 4`|`loss: 2`|`step 37`|`epoch 3`
`in 37 steps`|`4 ranks`|`37 wins`|`rank 0`|`4 times quicker than one`|`twice as fast`|`half of it`
`a full second`
"""
ALLOWED = {
    "names of the field": "fp32|A100|1F1B|3D|int8|sha256|ZeRO-3|GPT-2|Q3",
    "few enough to count at a glance": "one|two|three|four|none|both|a pair|two times|one of four",
    "no number in it": "several|a few|many|most|a majority|halfway|by a factor of|equal|dual|zero",
    "an order, or a word with another sense": (
        "first|second|a second time|every other rank|a bit|a byte|a day"
    ),
    "too rare, or not English": "a gross|a fortnight|a lakh|zwei|as many again|nought|iv|fortytwo",
    "a coefficient or an index of a law": "$2n$|$x_2$|`2 * n`|`16 B × parameters`|`x[37]`|`n − 1`",
    "code: a literal, a command or a call": (
        "`37`|`[5, 2]`|`1e-5`|`range(37)`|`--ranks 4`|`python a.py 4`|`return 2`"
    ),
    "one word is an identifier": "`quartered`",
    "addresses and numbers of lists": (
        "[it](https://a.org/37)|<https://a.org/37>|1. A list|37. A list|37) A list|"
        "[^37]\n\n[^37]: It."
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", REFUSED.replace("\n", "|").strip("|").split("|"))
def test_a_typed_quantity_is_refused(form):
    begins_line = form.startswith(("#", ">", "- "))
    assert prose.faults(form if begins_line else f"It is {form} of it.", "prose")


@pytest.mark.parametrize(
    ("form", "because"),
    [(form, because) for because, forms in ALLOWED.items() for form in forms.split("|")],
)
def test_a_form_is_allowed_because_it_states_no_measurement(form, because):
    text = form if form.endswith("A list") else f"It is {form}."
    assert prose.faults(text, "prose") == (), because


def _idea(text):
    return LEARN, f"idea: {IDEA}", "idea: |\n  " + text.replace("\n", "\n  ")


def _comment(text):
    return MEAN, TOTAL, f"    {text}\n{TOTAL}"


def _svg(text):
    return "pages/parts.svg", "</svg>", f"{text}</svg>"


PLACES = {
    # A unit is one that a value beside it, below it or along it is in.
    "count in seconds": (*_idea(f"In seconds: for {COUNT}."), "unit 'seconds'"),
    "count in ms": (*_idea(f"Milliseconds: {COUNT}."), "unit 'Milliseconds'"),
    "count, in ms": (*_idea(f"It is {COUNT}, in ms."), "unit 'ms'"),
    "bytes before a time": (*_idea(f"Bytes: {TIME}."), "unit 'Bytes'"),
    "sizes before a time": (*_idea(f"In MiB, it is {TIME}."), "unit 'MiB'"),
    "its own unit": (*_idea(f"In MiB: {BYTES}, and seconds: {TIME}."), ""),
    "bytes as what is sent": (*_idea(f"All bytes of {COUNT} epochs."), ""),
    "a unit without a value": (*_idea("A kernel lasts milliseconds."), ""),
    "head of a table in a text": (*_idea(f"| ms |\n|---|\n| {COUNT} |"), "unit 'ms'"),
    "column": (WORKED, "[peak, parameters]", "[ms, parameters]", "unit 'ms'"),
    "column of its own unit": (WORKED, "[peak, parameters]", "[peak, parameters in MiB]", ""),
    "column of bytes": (WORKED, "[peak, parameters]", "[bytes at the peak, parameters]", ""),
    "column of times": ("topics/averaging/quiz.yml", "[Median]", "[Bytes]", "unit 'Bytes'"),
    "row": (EXPERIMENT, "title: Peak of the", "title: Milliseconds of the", "unit 'Millis"),
    "row of costs": (COST, "what: Peak of the whole", "what: Hours of the whole", "unit 'Hours'"),
    "axis": (COST, "x_label: Parameters on the rank", "x_label: Milliseconds", "unit 'Millis"),
    "other axis": (COST, "y_label: Peak", 'y_label: "Peak, s"', "unit 's'"),
    "fact of a play": (EXPERIMENT, "label: Highest peak", "label: Per cent", "unit 'Per cent'"),
    "question": (DRAWN, "of a step?\n    answer", "in ms?\n    answer", "unit 'ms'"),
    "label of a unit": (*_idea(COUNT.replace(" }}", "|unit('dozens') }}")), "names 'dozens'"),
    "count as code": (*_idea("It has `147456` tokens."), "quantity '`147456`'"),
    "count as code, in groups": (*_idea("It has `79,160` tokens."), "quantity '`79,160`'"),
    "count of a program": (*_idea("It prints `1024` rows."), ""),
    # Comments and docstrings: the program's own numbers, but no measure and no ratio.
    "comment, time": (*_comment("# It took 37 ms."), "mean.py:5: a comment states '37 ms'"),
    "comment, ratio": (*_comment("# 4 times quicker than one"), "states '4 times quicker'"),
    "comment, factor": (*_comment("# 3x faster"), "a comment states '3x faster'"),
    "comment, spelled": (*_comment("# twice as fast"), "a comment states 'twice as'"),
    "comment, share": (*_comment("# saves 40%"), "a comment states '40%'"),
    "docstring": (MEAN, "ranks found.", "ranks found in 2.5 GiB.", "mean.py:1: a comment"),
    "its ranks": (*_comment("# 4 ranks, half of the values, 0.9 of rank 1"), ""),
    "a formula": (*_comment("# 2 (N - 1) / N times the payload"), ""),
    # What an author draws is words too; its paths are not read, nor are pictures of pixels.
    "svg": (*_svg("<text>37 ms</text>"), "its words state '37'"),
    "svg, parts": (*_svg("<text><tspan>37</tspan> ms</text>"), "its words state '37'"),
    "svg, title": (*_svg("<title>Twice as fast</title>"), "its words state 'Twice'"),
    "svg, names": (*_svg("<text>rank 0 in fp32</text><style>text{font-size:37px}</style>"), ""),
    "svg, broken": (*_svg("<text>"), "no SVG: mismatched tag"),
    # Other texts of a page.
    "fence": (*_idea("```text\nstep: 12 ms\n```"), "quantity '12 ms'"),
    "fence of code": (*_idea("```python\nx = 37\n```"), ""),
    "fence of commands": (*_idea("```sh\nplan --memory 40GB\n```"), ""),
    "page": (PAGE, "A model of", "```\nIt took 37 ms.\n```\n\nA model of", "quantity '37 ms'"),
    "alternative text": (PAGE, "![Two parts", "![37 ms of parts", "bare numeral '37'"),
    "box": (PAGE, '"Costs"', '"Costs 37 ms"', "bare numeral '37'"),
    "heading": (PAGE, "A model of", "# Costs 37 ms\n\nA model of", "bare numeral '37'"),
    "front matter": (PAGE, "title: What", "title: 37", "bare numeral '37'"),
    "comment of YAML, on no page": (LEARN, "title: Two that agree", "title: Two  # 37 ms", ""),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_quantity_is_refused_wherever_a_page_shows_it(copy, place):
    file, old, new, said = PLACES[place]
    path = copy.content / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    errors = copy.errors()
    assert any(said in error for error in errors) if said else errors == []
