"""Pages of content/pages: the rules of every text, with file, line and column, and what prints."""

import re

import pytest
from markdown import Markdown

from proofbook.generator.content import addresses
from proofbook.generator.content.errors import ContentErrors
from proofbook.generator.kinds.glossary.links import TermLinks
from proofbook.generator.kinds.glossary.words import Term
from proofbook.generator.pages.press import Press
from proofbook.generator.printing.markdown import render
from proofbook.generator.website.page_html import SiteMarkup
from proofbook.generator.website.publish import site_files

HEAD = "---\ntitle: About\ndescription: All of it\n---\n"


@pytest.fixture
def write(copy):
    """Write a page into content/pages of a copy of the frozen book."""

    def written(name, text):
        path = copy.content / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return written


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{HEAD}\nIt takes 3 ms.\n", "6:10: bare numeral '3'"),
        (f"{HEAD}Twice as fast.\n", "5:1: spelled quantity"),
        (HEAD.replace("of it", "3"), "3:18: bare numeral '3'"),
        (HEAD.replace("title", "titel"), "2:1: unknown key 'titel'; did you mean 'title'?"),
        ("# About\n", "1:1: begin with title: and description:"),
        (f"{HEAD}\nNeeds {{{{ tiny_memory.hole }}}}.\n", "6:10: tiny_memory.hole: "),
        (HEAD.replace("About", '"{{ tiny_memory.hole }}"'), "2:12: tiny_memory.hole: "),
        (b"# \xff\n", "1:3: cannot be read: not UTF-8; save it as UTF-8"),
        (f"{HEAD}```listing\ntitle: It\npath: content/topics/averaging/code/no.py\n```\n",
         "7:7: no file"),
        (f"{HEAD}\n```pyhton\nx\n```\n", "6:1: fence '```pyhton'; write ``` alone"),
        (f"{HEAD}\n~~~listing\nx\n~~~\n", "6:1: fence '~~~listing'"),
        (f"{HEAD}\n```quizz\nx\n```\n", "6:1: fence '```quizz'; write ```quiz, and ``` below"),
        (f"{HEAD}\n- a\n\n    ````quiz\n    x\n    ````\n", "8:5: fence '````quiz'; write ```"),
        (f"{HEAD}\n```quiz\nwhat-peak\n", "6:1: fence '```quiz'; write ```quiz, and ``` below it"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(copy, write, text, error):
    write("guides/about.md", text)
    errors = copy.errors()
    assert len(errors) == 1
    assert errors[0].startswith(f"content/pages/guides/about.md:{error}")
    with pytest.raises(ContentErrors):
        Press().printed(copy.load())


@pytest.mark.parametrize(
    "written",
    [
        '<a href="java&#115;cript:a">', "<A HREF='  JaVaScRiPt:a'>", '<a href="java\tscript:a">',
        '<a href="&#1;javascript:a">', "<a href=vbscript:a>", '<svg><a xlink:href="javascript:a">',
        '<img src="data:text/html,a">', '<form action="javascript:a">', '<a href="http://a.org">',
        '[a](b.md){: href="javascript:a" }', "[a](javascript\\:a)", "[a][b]\n\n[b]: javascript:a",
        "## [a](&#106;avascript:a)",
    ],
)  # fmt: skip
def test_an_address_that_executes_is_found_in_the_html_of_a_page_at_its_place(written):
    html = Markdown(extensions=["attr_list", "md_in_html"]).convert(f"It.\n\n{written}\n")
    (mistake,) = addresses.mistakes(html, "content/pages/a.md", f"{HEAD}It.\n\n{written}\n")
    assert mistake.line >= 7
    assert mistake.column
    assert mistake.message.startswith("link to ")


def test_pictures_in_a_page_and_addresses_shown_as_code_are_left_alone():
    code = '`<a href="javascript:a">`\n\n    <a href="javascript:b">\n'
    html = Markdown().convert(f'{code}\n<img src="data:image/png;base64,AA"> [a](#b:c)\n')
    assert list(addresses.mistakes(html, "a.md", "")) == []


def test_a_page_beside_the_topics_may_have_the_names_of_a_lesson(copy, write, book):
    write("sharding/deep.md", HEAD)
    pages = Press().printed(copy.load())
    assert pages["topics/sharding/deep.md"] == Press().printed(book)["topics/sharding/deep.md"]
    assert "sharding/deep.md" in pages


@pytest.mark.parametrize("name", ["evidence.md", "topics/sharding/index.md"])
def test_a_page_may_not_take_the_place_of_one_of_the_books(copy, write, name):
    write(name, HEAD)
    with pytest.raises(ContentErrors, match=f"content/pages/{name}: the book has a page"):
        Press().printed(copy.load())


def test_a_picture_may_not_take_the_place_of_a_file_of_the_book(copy, write):
    write("assets/proofbook.css", "p {}")
    with pytest.raises(ContentErrors, match=r"content/pages/assets/proofbook\.css: the book has"):
        site_files(copy.load(), copy.content, Press())


def test_a_page_asks_items_of_topics_and_items_of_its_own(copy, write):
    own = "id: own\nkind: number\nstem: How many?\nanswer: tiny_memory.whole.world_size\nwhy: So.\n"
    write(
        "about.md",
        f"{HEAD}## Part\n\n```quiz\n- what-peak\n- which-hold\n```\n\n```quiz\n{own}```\n",
    )
    page = Press().printed(copy.load())["about.md"].decode()
    asked = re.findall(r'data-item="([^"]+)" data-digest="(\w+)"', page)
    assert [name for name, _ in asked] == ["what-peak", "which-hold", "own"]
    there = Press().printed(copy.load())["topics/asking/challenge.md"].decode()
    assert all(f'data-item="{name}" data-digest="{digest}"' in there for name, digest in asked[:2])
    assert page.count('<h3 class="pb-eyebrow">') == 3


def test_the_search_reads_what_a_page_folds_and_no_answer(copy, write):
    own = "id: own\nkind: number\nstem: How many?\nanswer: tiny_memory.whole.world_size\nwhy: So.\n"
    write("about.md", f"{HEAD}## Part\n\n```quiz\n{own}```\n")
    press, markup = Press(), SiteMarkup()
    press.printed(copy.load())
    assert "So." not in press.pages["about.md"].searched
    folded = "<details markdown><summary>More</summary>\n\nThere.\n\n</details>"
    Markdown(extensions=["md_in_html", markup]).convert(f"# It\n\nHere.\n\n{folded}\n")
    assert "There." in markup.searched


@pytest.mark.parametrize(
    ("fence", "error"),
    [
        ("- what-peek", "6:3: no item 'what-peek'; did you mean 'what-peak'?"),
        ("what-peak\nwhich-hold", "6:1: several ids are a list: write [what-peak, which-hold]"),
        ("id: what-peak\nstem: A\nanswer: 1 + 1\nkind: number\nwhy: B", "6:5: duplicate item id"),
        ("id: own\nstem: A\nsource: B\nkind: number\nwhy: C\nanswer: tiny_memory.whole.world_size",
         "8:9: a key of a book follows from its claims"),
        ("id: own\nstem: A\noptions:\n- {text: a, why: b, right: true}\n"
         "- {text: b, why: c, right: false}", "9:28: a key of a book follows from its claims"),
    ],
)  # fmt: skip
def test_mistakes_of_a_question_in_a_page_are_told_with_their_place(copy, write, fence, error):
    write("about.md", f"{HEAD}```quiz\n{fence}\n```\n")
    assert copy.errors()[0].startswith(f"content/pages/about.md:{error}")


# --- the glossary's terms, linked where a page uses them first


def links(*terms):
    found = [
        Term(id=term.replace(" ", "-"), term=term, also=also, definition="It.", run="a.b")
        for term, *also in terms
    ]
    return TermLinks(found, "../../")


def linked(page, text):
    html = page.linked(render(text, lambda _: "<span>rank</span>", str, inline=False))
    return re.findall(r'<a class="pb-term" href="([^"]+)">([^<]+)</a>', html)


def test_a_term_is_linked_where_the_page_uses_it_first_and_nowhere_else():
    page = links(("rank", "ranks"))
    assert linked(page, "Two ranks and a rank.") == [("../../glossary.html#term-rank", "ranks")]
    assert linked(page, "A rank.") == []


def test_the_longest_term_is_linked_and_words_that_hold_one_are_not():
    page = links(("gradient",), ("gradient accumulation",))
    assert linked(page, "Gradient\naccumulation of gradients, gradient-free.") == [
        ("../../glossary.html#term-gradient-accumulation", "Gradient\naccumulation")
    ]
    assert linked(page, "A gradient.") == [("../../glossary.html#term-gradient", "gradient")]


@pytest.mark.parametrize(
    "text",
    ["[a *rank*](x.html)", "`rank`", '![a rank](x.png "rank")', "$\\text{rank}$", "{{ a.rank }}",
     "[`rank`](x.html)", "```\nrank\n```"],
)  # fmt: skip
def test_no_term_is_linked_in_a_link_code_a_formula_or_a_value(text):
    page = links(("rank",))
    assert linked(page, text) == []
    assert linked(page, f"{text}\n\n**rank**")


def test_a_long_page_keeps_the_links_of_its_first_terms_only():
    page = links(*((letter * 2,) for letter in "abcd"))
    page.most = 2
    assert [words for _, words in linked(page, "aa bb aa cc")] == ["aa", "bb"]
    assert linked(page, "dd") == []
    assert page.used == {"aa", "bb", "cc", "dd"}
