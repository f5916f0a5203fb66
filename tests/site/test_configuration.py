"""What a person who knows MkDocs may configure and add: nav, links to sources, pages.

One project has all of it, and is built once: a nav of every legal kind, a repository, and pages
written by hand in `content/pages` and put into `docs_dir`.
"""

from pathlib import Path

import pytest

from tests.conftest import mkdocs
from tests.site.conftest import own_book
from tests.site.html_reading import Reading, read

CONFIGURED = """\
repo_url: https://github.com/example/book
edit_uri: edit/main/
nav:
  - index.md
  - Lessons:
      - Empty: []
      - Sharding & more:
          - topics/sharding/experiment.md
          - Overview: topics/sharding/index.md
      - topics/index.md
  - Guides:
      - guides/about.md
      - Elsewhere: https://example.org/elsewhere
  - evidence.md
  - Once more: evidence.md
  - Nothing yet: []
  - Links only:
      - Outside: https://example.org/outside
  - Code: https://example.org/code
  - mine.md
"""
DEMO = '<meta charset="utf-8"><style>p { color: red }</style><table><p>3'


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The project's folder, and what the build said."""
    folder = own_book(tmp_path_factory.mktemp("configured") / "book", CONFIGURED)
    guides = folder / "content" / "pages" / "guides"
    guides.mkdir(parents=True)
    head = "---\ntitle: About\ndescription: What it is.\n---\n"
    (guides / "about.md").write_text(f"{head}# About\n\n![a picture](picture-2.svg)\n")
    (guides / "picture-2.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "pages" / "mine.md").write_text("# Mine\n\n<table>\n\nAll 3 of them.\n")
    (folder / "pages" / "demo.html").write_text(DEMO)
    done = mkdocs(folder, "build")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


def page(built: tuple[Path, str], name: str) -> Reading:
    return read(built[0] / "html" / name)


def words(reading: Reading) -> list[tuple[str, str, str]]:
    """The words of the header: text, address, aria-current."""
    shown = [
        (" ".join(text.split()), inside[-1].attributes)
        for text, inside in reading.texts
        if any("pb-sections" in tag.classes for tag in inside)
    ]
    return [(text, link["href"], link.get("aria-current", "")) for text, link in shown]


def test_the_header_leads_into_every_section_of_the_nav_and_marks_the_readers(built):
    assert words(page(built, "topics/sharding/deep.html")) == [
        ("Lessons", "../index.html", "true"),
        ("Guides", "../../guides/about.html", ""),
        ("Evidence", "../../evidence.html", ""),
        ("Evidence", "../../evidence.html", ""),
        ("Links only", "https://example.org/outside", ""),
        ("Code", "https://example.org/code", ""),
        ("Mine", "../../mine.html", ""),
    ]
    for name, word in (("guides/about", "Guides"), ("mine", "Mine")):  # the link leads to this page
        current = {text: mark for text, _, mark in words(page(built, f"{name}.html")) if mark}
        assert current == {word: "page"}


def test_edit_links_lead_to_what_an_author_wrote(built):
    base = "https://github.com/example/book/edit/main/"
    for name, *source in (
        ("topics/sharding/experiment", "content/topics/sharding/experiment.yml"),
        ("guides/about", "content/pages/guides/about.md"),
        ("mine", "pages/mine.md"),
        ("evidence/tiny_memory",),
    ):
        links = [one.attributes for one in page(built, f"{name}.html").tags]
        leads = [link["href"] for link in links if link.get("rel") == "edit"]
        assert leads == [f"{base}{one}" for one in source], name


def test_what_somebody_put_into_docs_dir_is_built_as_mkdocs_builds_it(built):
    assert "All 3 of them." in (built[0] / "html" / "mine.html").read_text(encoding="utf-8")
    assert (built[0] / "html" / "demo.html").read_text() == DEMO
    assert (built[0] / "html" / "guides" / "picture-2.svg").is_file()
