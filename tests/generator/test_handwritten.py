"""Pages of content/pages: the rules of every text, with file, line and column, and what prints."""

from __future__ import annotations

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
        ("# Needs {{ tiny_memory.hole }}\n", "1:12: tiny_memory.hole: "),
        (b"# \xff\n", "1:3: cannot be read: not UTF-8"),
        ("```listing\ntitle: No\npath: content/topics/averaging/code/no.py\n```\n", "3:7: no file"),
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
