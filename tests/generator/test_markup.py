"""Marks of authors' texts and what questions show: what a reader gets, and what is never let in."""

import re
from xml.etree import ElementTree

import pytest
from markdown import Markdown
from markupsafe import Markup

from proofbook.generator.content import prose
from proofbook.generator.pages import facts
from proofbook.generator.pages.elements.element import Heading, Waiting
from proofbook.generator.pages.elements.tables import Table, with_units
from proofbook.generator.pages.press import Press
from proofbook.generator.printing.markdown import render as render_text
from proofbook.generator.website.page_html import SiteMarkup
from proofbook.generator.website.publish import site_files
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


def test_an_image_is_copied_beside_its_page_and_a_large_one_refused(copy):
    files = site_files(copy.load(), copy.content, Press())
    image = copy.content / "topics/averaging/parts.svg"
    assert files["topics/averaging/parts.svg"] == image.read_bytes()
    image.write_bytes(bytes(200_001))
    (error,) = copy.errors()
    assert error.startswith(
        "content/topics/averaging/worked.yml:18:7: image 'parts.svg': it has 201 kB"
    )


def _form(page, item):
    return re.search(rf'<form class="pb-item" data-item="{item}".*?</form>', page, re.DOTALL)[0]


def test_a_question_shows_a_drawing_a_program_or_a_log_that_opens_nothing(rendered):
    log, program = (_form(rendered[ASKED], one) for one in ("which-hold", "how-many-parameters"))
    assert "you tried to allocate 40000 bytes." in log
    assert "return total / world_size" in re.sub("<[^>]+>", "", program)
    figure = _form(rendered[WORKED.replace("worked", "recall")], "is-it-equal")
    assert figure.count("<svg") == 2
    assert not re.search(r"data-|\ba href|<button|<details", figure.partition("<figure")[2]
                         .partition("</figure>")[0])  # fmt: skip


# --- markdown of authors looks as our templates write HTML


VALUE = '<a class="pb-value" href="evidence.html">4 MiB</a>'


@pytest.mark.parametrize(
    ("written", "html"),
    [
        ("## A `b` & *c*", '<h2 id="a-b-c"><a href="#a-b-c">A <code>b</code> &amp; <em>c</em></a>'),
        ("# Title", '<h1 id="title">Title</h1>'),
        ("### [A](b.html)", '<h3 id="a"><a href="b.html">A</a></h3>'),
        (f"## It needs {VALUE}", f">It needs {VALUE}</h2>"),
        ("|a|\n|-|\n|1|", '<table class="pb-table">'),
        ("    code", '<pre><code tabindex="0">code'),
        ("<div markdown>\n## In it\n</div>", '<h2 id="in-it"><a href="#in-it">In it</a></h2>'),
    ],
)
def test_markdown_by_hand_becomes_what_templates_write(written, html):
    reader = Markdown(extensions=["tables", "md_in_html", "toc", SiteMarkup()])
    assert html in reader.convert(written)


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
