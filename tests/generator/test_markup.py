"""Marks of authors' texts and what questions show: what a reader gets, and what is never let in."""

import re
from html import unescape
from typing import get_args
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from proofbook.generator.content import prose
from proofbook.generator.content.claim import Verdict
from proofbook.generator.content.listed_code import listed
from proofbook.generator.kinds.figures.drawing import NARROW, WIDE
from proofbook.generator.pages import facts
from proofbook.generator.pages.elements.element import Heading, Waiting
from proofbook.generator.pages.elements.programs import highlighted_lines, unified
from proofbook.generator.pages.elements.tables import Table, with_units
from proofbook.generator.pages.press import Press
from proofbook.generator.printing.markdown import render as render_text
from proofbook.generator.values.value import KINDS
from proofbook.generator.website import publish
from proofbook.generator.website.publish import site_files
from tests.conftest import ROOT
from tests.generator.conftest import render

WORKED, ASKED = "topics/averaging/worked.md", "topics/asking/challenge.md"
LINK = '<a class="pb-value" data-v="7">12 MiB</a>'


def rendered_text(text):
    return render_text(text, lambda _: LINK, lambda _: "<span>12 MiB</span>", inline=False)


def test_a_text_knows_what_it_holds():
    text = rendered_text(
        "See [a `b`](c.html), {{ a.b }}, $x = {{ a.b }}$ and it[^n].\n\n```\nno word\n```\n\n"
        "[^n]: Here.\n\n|e|\n|-|\n|f|\n"
    )
    assert text.markup == {"formula", "footnote"}
    read = "See a b 12 MiB x 12 MiB 12 MiB and it [1] e f Here"
    assert text.num_words == read.count(" ") + 1
    assert text.plain.startswith("See a b, 12 MiB, x = \\text{12 MiB} (12 MiB) and it[1].")
    assert rendered_text("!!! note\n    It.").markup == {"admonition"}


def drawn(text):
    """The formula of a text as a tree, read by a parser of XML."""
    html = re.search(r"<math.*?</math>", rendered_text(text), re.DOTALL)[0]
    return ElementTree.fromstring(re.sub(r"&[A-Za-z]+;(?<!lt;)(?<!amp;)(?<!gt;)", "", html))


def test_a_formula_is_drawn_and_carries_its_latex():
    math = drawn(r"So $\frac{2(n-1)}{n}$ of it.")
    over, under = math.find("semantics/mfrac")
    assert ("".join(over.itertext()), "".join(under.itertext())) == ("2(n−1)", "n")
    assert math.find("semantics/annotation").text == r"\frac{2(n-1)}{n}"
    assert drawn("$$x$$").get("display") == "block"


def test_a_value_in_a_formula_is_copied_as_text_and_opens_its_source_behind_it():
    text = r"$\frac{ {{ a.b }} }{{{ a.b }}}$"
    math = drawn(text)
    assert [one.text for one in math.findall(".//mfrac/mn")] == ["12 MiB", "12 MiB"]
    assert math.find("semantics/annotation").text == r"\frac{ \text{12 MiB} }{\text{12 MiB}}"
    assert rendered_text(text).endswith(f'</math> <small class="pb-inputs">({LINK})</small></p>')
    assert rendered_text("[so $x = {{ a.b }}$](x.html)").count("<a ") == 1  # links do not nest


@pytest.mark.parametrize(
    ("printed", "written"), [("4", "4"), ("1.5", "1.5"), ("27.3%", r"\text{27.3\%}")]
)
def test_a_value_in_latex_begins_no_comment_and_is_no_product_of_letters(printed, written):
    html = render_text("$x = {{ a.b }}$", *[lambda _: printed] * 2, inline=True)
    assert f'">x = {written}</annotation>' in html
    assert f"<mn>{printed}</mn>" in html


def test_a_line_ends_neither_before_nor_behind_what_touches_a_formula():
    html = render_text("So ($x$), or $y$ is.", str, str, inline=True)
    kept = re.findall(r'<span class="pb-keep">(.*?)</span>', html)
    assert [re.sub("<math.*?</math>", "x", one) for one in kept] == ["(x),"]
    block = rendered_text("So\n\n$$x$$.")
    assert "pb-keep" not in block


def test_what_stands_in_an_attribute_is_text():
    html = rendered_text('![a ring of {{ a.b }}](ring.png "of $n$")')
    assert html == '<p><img src="ring.png" alt="a ring of 12 MiB" title="of n" /></p>'


@pytest.mark.parametrize("text", [r"$\text{<script>}$", r"$<b>$", "$x$&lt;b&gt;"])
def test_no_html_comes_out_of_a_formula(text):
    assert not re.search(r"<(?:script|b)\b", rendered_text(text))


@pytest.mark.parametrize(
    "latex",
    [r"\color{red}{x}", r"\href{javascript:x}{y}", r"\hspace{1cm}", r"\eqref{a}", "{a", r"x^2^3"],
)
def test_a_formula_without_style_link_or_an_end_is_the_only_one(latex):
    assert any("no LaTeX" in fault.message for fault in prose.faults(f"${latex}$", "line"))


@pytest.mark.parametrize(
    "latex",
    [r"t = 42", "t = 0.5 x", r"28\,\%", r"\frac{1}{2}", r"4\ \text{ms}", r"\text{twice } x", "½ x",
     "x = 4096 y", r"4{,}096 x", "٣ x", r"x \approx 3", r"\text{in 3 steps}"],
)  # fmt: skip
def test_a_number_that_a_formula_states_is_refused(latex):
    assert prose.faults(f"${latex}$", "line")


@pytest.mark.parametrize(
    "latex",
    [r"\frac{2(n-1)}{n}", r"\frac{p-1}{m+p-1}", r"t = \alpha + \beta n", "16 P", "x_0 = 0", "p > 1",
     r"\text{fp32} \cdot 2^{10} x", r"i = 1, 2, \dots, n", "{{ a.b }} = 2 n", r"\max(x, 1)"],
)  # fmt: skip
def test_coefficients_indices_and_exponents_of_a_law_are_not(latex):
    assert prose.faults(f"${latex}$", "line") == ()


def test_dollars_of_code_and_of_money_are_no_formulas():
    text = "`$HOME` and `$PATH`, or \\$ and \\$.\n\n```sh\necho $A $B\n```\n"
    assert prose.faults(text, "prose") == ()
    assert "<math" not in rendered_text(text)


def test_footnotes_of_two_texts_of_a_page_lead_to_themselves(copy):
    copy.edit("topics/averaging/worked.yml", "  - title: What fits\n",
              "  - title: More\n    text: |\n      It[^rank].\n\n      [^rank]: Is.\n"
              "  - title: What fits\n")  # fmt: skip
    page = render(copy.load())[WORKED]
    for number in "12":
        for begins, ends in (("fn", "fnref"), ("fnref", "fn")):
            assert page.count(f'id="{begins}-{number}-1"') == 1
            assert f'href="#{ends}-{number}-1"' in page


def test_an_image_that_links_to_a_script_is_refused(copy):
    image = copy.content / "topics/averaging/parts.svg"
    link = '<a xlink:href="java&#115;cript:a">'
    image.write_text(image.read_text().replace("</svg>", f"{link}</a></svg>"))
    told = "content/topics/averaging/worked.yml:18:7: image 'parts.svg': parts.svg:1:"
    assert copy.errors()[0].startswith(told)


def test_an_image_is_copied_beside_its_page_and_a_large_one_refused(copy):
    files = site_files(copy.load(), copy.content, Press())
    image = copy.content / "topics/averaging/parts.svg"
    assert files["topics/averaging/parts.svg"] == image.read_bytes()
    image.write_bytes(bytes(200_001))
    (error,) = copy.errors()
    assert error.startswith(
        "content/topics/averaging/worked.yml:18:7: image 'parts.svg': it has 201 kB"
    )


# --- markdown of authors looks as our templates write HTML


# --- a unit that all numbers of a column have stands in its head, and nowhere else


NBSP = "\u00a0"


@pytest.mark.parametrize(
    ("cells", "head"),
    [
        ((f"4.00{NBSP}MiB", f"214{NBSP}MiB"), "Peak, MiB"),
        ((f"4.00{NBSP}MiB", "–"), "Peak, MiB"),
        (("4.76%", f"<{NBSP}0.001%"), "Peak, %"),
        ((f"4.00{NBSP}MiB", f"1.04{NBSP}GiB"), "Peak"),
        ((f"4.00{NBSP}MiB", "214"), "Peak"),
        ((f"4.00{NBSP}MiB paced",), "Peak"),
        ((f"16{NBSP}microbatches",), "Peak"),
    ],
)
def test_the_head_says_a_unit_that_all_numbers_have(cells, head):
    column = [[Markup(f"<a>{number}</a>")] for number in cells]
    heads, rows = with_units(["#Peak"], column)
    assert heads == [f"#{head}"]
    assert (rows == column) == (head == "Peak")
    assert not any(head.partition(", ")[2] in row[0] for row in rows if ", " in head)


# --- rows of tables: those that say something can be linked to and searched


TITLES = ["What the program prints", "What it means, and what to do", "#Share"]
SAYS = Markup("The network or another rank has failed.")
NUMBER = Markup("The share of a step that ranks idle: 3.5 %")


def table(*rows, **more):
    table = Table(TITLES[: len(rows[0])], rows, **more)
    table.give_ids(set())
    return table


def test_a_row_that_says_something_has_an_anchor_of_its_first_cell_unless_it_has_one():
    row, name = (Markup("<code>ncclRemoteError</code><br>Lost"), SAYS), "row-ncclremoteerror-lost"
    rows = table(row, row, (Markup("four ranks"), Markup()))
    assert rows.anchors == [name, f"{name}_1", ""]
    assert f'<tr id="{name}_1">' in Markup(rows)
    assert table([Markup("A B C D E four ranks and more")]).anchors == [""]
    assert table((Markup("Lost"), SAYS), anchors=["cause-lost"]).anchors == ["cause-lost"]


def test_a_row_is_an_entry_without_numbers_of_its_cells_unless_it_waits_for_an_answer():
    rows, heading = table((Markup("A rank"), SAYS, NUMBER)), Heading(1, Markup("It"), "it")
    sections = facts.searched([rows], heading, is_markdown=False)
    assert '<h2 id="row-a-rank">A rank</h2>' in sections
    assert "another rank has failed" in sections
    assert "What the program prints" in sections
    assert "idle" not in sections
    waiting = Waiting("asked", "a table", [rows])
    assert "rank" not in facts.searched([waiting], heading, is_markdown=False)


# --- listings: the file's own text, in colours, and two programs as the lines that differ


PAIRS = sorted(ROOT.glob("content/topics/*/code/*_wrong.py"))
HEAD = '"""Wrong.\n\ntorchrun a.py\n"""\n\n'


def shown(before, after):
    return unescape(re.sub(r"<[^>]+>", "", unified(before, after)))


def test_only_lines_that_differ_are_shown_with_two_of_context_and_their_number():
    before = HEAD + "".join(f"step_{n}()\n" for n in range(9))
    after = before.replace("Wrong", "Right").replace("step_6()", "other()")
    assert shown(before, after) == (
        "line 10\n  step_4()\n  step_5()\n- step_6()\n+ other()\n  step_7()\n  step_8()\n"
    )


def test_a_line_that_only_moves_in_is_shown_as_the_right_program_has_it():
    before = "for one in all:\n    go(one)\nend()\n"
    after = "with join():\n    for one in all:\n        go(one)\nend()\n"
    assert shown(before, after) == (
        "line 1\n+ with join():\n      for one in all:\n          go(one)\n"
    )


def test_where_most_differs_no_difference_is_shown():
    assert shown("".join(f"a{n}\n" for n in range(30)), "".join(f"b{n}\n" for n in range(30))) == ""


@pytest.mark.parametrize("wrong", PAIRS, ids=lambda path: path.stem)
def test_a_difference_holds_lines_of_the_wrong_program_where_it_says_and_of_the_right_one(wrong):
    before, after = (
        listed(ROOT, path.relative_to(ROOT).as_posix(), None)
        for path in (wrong, wrong.with_name(wrong.name.replace("_wrong", "_right")))
    )
    told = re.split(r"^line (\d+)\n", shown(before, after), flags=re.MULTILINE)[1:]
    for number, lines in zip(told[::2], told[1::2], strict=True):
        old, new = (
            [line[1:].strip() for line in lines.splitlines() if line[0] != mark] for mark in "+-"
        )
        start = int(number) - 1
        assert [line.strip() for line in before.splitlines()][start : start + len(old)] == old
        assert "\n".join(new) in "\n".join(line.strip() for line in after.splitlines())
        assert old != new


def test_a_listing_is_the_files_own_text(rendered, tmp_path):
    shown = "content/code/a.py"
    (tmp_path / shown).parent.mkdir(parents=True)
    (tmp_path / shown).write_text(
        "import os\n\n\n@cache\ndef f():\n    return os\n\n\ndef g(): ...\n"
    )
    assert listed(tmp_path, shown, "f") == "@cache\ndef f():\n    return os\n"
    assert listed(tmp_path, shown, None).startswith("import os")
    with pytest.raises(ValueError, match="defines no 'h'"):
        listed(tmp_path, shown, "h")
    assert '<span class="k">def</span>' in rendered["topics/sharding/experiment.md"]


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("WIDTH = 3\n# bytes: WIDTH\n# expected: failed\n\n\nf()\n", "WIDTH = 3\n\n\nf()\n"),
        ("WIDTH = 3\n# model_bytes: 4 * WIDTH\n\nf()\n", "WIDTH = 3\n\nf()\n"),
        ('"""One."""\n\n# expected: failed\n\nf()\n', '"""One."""\n\nf()\n'),
        ('"""One."""\n\n# expected: failed\nf()\n', '"""One."""\n\nf()\n'),
        ("f()\n\n# expected: failed\n", "f()\n"),
        ("# A note\nf()  # a: note\n", "# A note\nf()  # a: note\n"),
    ],
)
def test_a_listing_leaves_out_what_a_program_tells_the_runner(tmp_path, program, shown):
    path = "content/topics/one/code/a.py"
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(program)
    assert listed(tmp_path, path, None) == shown


def test_each_line_closes_what_it_opens():
    code = '"""A program\nwith a < b in its head.\n"""\n\nimport time  # now\n\nprint("a & b")\n'
    lines = highlighted_lines(code)
    assert sum("<span" in line for line in lines) >= 5
    assert [line for line in lines if line.count("<span") != line.count("</span>")] == []


# --- the style sheets: no unused class, and nothing that Safari ignores


WRITES_CLASSES = (".py", ".j2", ".js", ".html", ".yml")
CLASS = re.compile(r"\.(pb-[a-z0-9-]+)")


def test_every_class_of_the_style_sheets_is_written_by_a_template_or_a_script(root):
    sources = [
        path.read_text(encoding="utf-8")
        for path in sorted((root / "generator").rglob("*"))
        if path.suffix in WRITES_CLASSES
    ]
    written = set(re.findall(r"pb-[a-z0-9-]+", "\n".join(sources)))
    sheets = [path.read_text(encoding="utf-8") for path in publish.ASSETS.rglob("*.css")]
    styled = {name for sheet in sheets for name in CLASS.findall(sheet)}
    assert len(styled) > 100
    names = (*KINDS, *get_args(Verdict), WIDE.name, NARROW.name)
    drawings = (root / "generator" / "figures").rglob("*.py")
    looks = re.findall(r"[a-z]+(?:-[a-z]+)*", "".join(path.read_text() for path in drawings))
    put_together = {f"pb-{name.replace('_', '-')}" for name in (*names, *looks)}
    assert sorted(styled - written - put_together) == []


def test_no_line_below_words_has_a_colour_or_a_style_in_the_shorthand_that_safari_ignores():
    lines = re.findall(r"[^-]text-decoration:([^;}]+)", publish.style().decode())
    assert len(lines) > 3
    assert set(lines) <= {"none", "underline"}
