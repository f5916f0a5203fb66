"""Pages of content/pages: the rules of every text, with file, line and column, and what prints."""

from __future__ import annotations

import re

import pytest

from generator.content.errors import ContentErrors
from generator.pages.press import Press
from generator.website.publish import site_files


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
        ("# About\n\nIt takes 3 ms.\n", "3:10: bare numeral '3'"),
        ("---\ndescription: All of it\n---\n# About\n\nTwice as fast.\n", "6:1: spelled quantity"),
        ("---\ndescription: All 3\n---\n# About\n", "2:18: bare numeral '3'"),
        ("---\ntitel: About\n---\n", "2:1: unknown key 'titel'; did you mean 'title'?"),
        ("---\ntitle: About\n---\n\n# About\n", "5:1: a second title"),
        ("# About\n\nNeeds {{ tiny_memory.hole }}.\n", "3:10: tiny_memory.hole: "),
        ("# About\n\nNeeds {{ 7 }}.\n", "3:10: 7: 7 is a bare constant"),
        ("# About {{ x\n", "1:9: {{ without its other half"),
        ("# About\n\n[Home](http://example.org)\n", "3:8: link to 'http://example.org'"),
        ("# Needs {{ tiny_memory.hole }}\n", "1:12: tiny_memory.hole: "),
        (b"# \xff\n", "1:3: cannot be read: not UTF-8"),
    ],
)
def test_mistakes_are_told_with_their_place(copy, write, text, error):
    write("guides/about.md", text)
    errors = copy.errors()
    assert len(errors) == 1
    assert errors[0].startswith(f"content/pages/guides/about.md:{error}")
    with pytest.raises(ContentErrors):
        Press().printed(copy.load())


def test_code_and_labels_may_hold_digits_and_braces(copy, write):
    write("about.md", "# On fp32\n\n`{{ 3 }}` of `3`\n\n```python\nx = {{ 3 }}\n```\n")
    assert copy.errors() == []
    page = Press().printed(copy.load())["about.md"].decode()
    assert "`{{ 3 }}` of `3`\n" in page
    listing = page[page.index('<div class="pb-listing"><div class="highlight">') :]
    assert "x = {{ 3 }}\n" in re.sub(r"<[^>]*>", "", listing)
    assert '<span class="mi">3</span>' in listing  # in colours, as in lessons


@pytest.mark.parametrize("name", ["evidence.md", "topics/sharding/index.md"])
def test_a_page_may_not_take_the_place_of_one_of_the_books(copy, write, name):
    write(name, "# Mine\n")
    with pytest.raises(ContentErrors, match=f"content/pages/{name}: the book has a page"):
        Press().printed(copy.load())


def test_a_picture_may_not_take_the_place_of_a_file_of_the_book(copy, write):
    write("assets/proofbook.css", "p {}")
    with pytest.raises(ContentErrors, match=r"content/pages/assets/proofbook\.css: the book has"):
        site_files(copy.load(), copy.content, Press())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("<script>alert(x)</script>", "3:1: HTML; write Markdown"),
        ("A <img src=x onerror=alert(x)> b", "3:3: HTML; write Markdown"),
        ("<!--pb-aside-0-->", "3:1: HTML; write Markdown"),
        ("![x](https://example.org/x.png)", "3:1: an image from elsewhere"),
        ("![x](//example.org/x.png)", "3:6: link to '//example.org/x.png'"),
        ("![x][y]\n\n[y]: https://example.org/x.png", "3:1: an image from elsewhere"),
        ("![x](data:image/png;x)", "3:6: link to 'data:image/png;x'"),
        ("[x](a.html){: onclick=x }", "3:12: attributes in braces"),
        ("*x*{ onclick=x }", "3:4: attributes in braces"),
        ("Text\n{: style=x }", "4:1: attributes in braces"),
        ('!!! note "Mind"\n    This.', "3:1: !!! note prints as it is written"),
        ("> ???+ tip\n    This.", "3:3: ???+ tip prints as it is written"),
        ('=== "Linux"\n    This.', '3:1: === "Linux" prints as it is written'),
    ],
)
def test_a_page_is_markdown_and_stays_in_the_site(copy, write, line, said):
    write("about.md", f"# About\n\n{line}\n")
    assert any(error.startswith(f"content/pages/about.md:{said}") for error in copy.errors())


@pytest.mark.parametrize("line", ["![x](x.svg)", "a < b and b > c", "<!-- a note -->", "A {word}."])
def test_a_page_shows_images_beside_it_and_hides_notes(copy, write, line):
    write("about.md", f"# About\n\n{line}\n")
    assert copy.errors() == []
