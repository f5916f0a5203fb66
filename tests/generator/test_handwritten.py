"""Pages of content/pages: the rules of every text, with file, line and column, and what prints."""

from __future__ import annotations

import re
from html import unescape

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
        ("# About\n\nNeeds {{ tiny_memory.hole }}.\n", "3:10: tiny_memory.hole: "),
        ("# About\n\nNeeds {{ 7 }}.\n", "3:10: 7: 7 is a bare constant"),
        ("# About {{ x\n", "1:9: braces '{{'"),
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


@pytest.mark.parametrize("name", ["evidence.md", "topics/sharding/index.md"])
def test_a_page_may_not_take_the_place_of_one_of_the_books(copy, write, name):
    write(name, "# Mine\n")
    with pytest.raises(ContentErrors, match=f"content/pages/{name}: the book has a page"):
        Press().printed(copy.load())


def test_a_picture_may_not_take_the_place_of_a_file_of_the_book(copy, write):
    write("assets/proofbook.css", "p {}")
    with pytest.raises(ContentErrors, match=r"content/pages/assets/proofbook\.css: the book has"):
        site_files(copy.load(), copy.content, Press())


LISTING = """# Programs

Before.

```listing
title: Means
path: content/topics/averaging/code/{}
```

After.
"""


def test_a_program_is_shown_whole_and_can_be_downloaded(copy, write):
    write("programs.md", LISTING.format("mean.py"))
    assert copy.errors() == []
    files = site_files(copy.load(), copy.content, Press())
    program = (copy.content / "topics/averaging/code/mean.py").read_bytes()
    assert files["programs/mean.py"] == program
    page = files["programs.md"].decode()
    rest = page.partition("Before.")[2]
    assert 'href="programs/mean.py" download' in rest
    assert "<summary>Means</summary>" in rest
    shown = unescape(re.sub(r"<[^>]*>", "", rest))
    assert program.decode().splitlines()[-1] in shown.partition("After.")[0]
    assert "```" not in page


def test_a_program_that_is_not_there_is_told_with_its_place(copy, write):
    write("programs.md", LISTING.format("means.py"))
    assert [one.partition(": no file")[0] for one in copy.errors()] == [
        "content/pages/programs.md:7:7"
    ]
