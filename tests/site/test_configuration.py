"""What a person who knows MkDocs may configure and add: nav, links to sources, pages, a machine.

One project has all of it, and is built once: a nav of every legal kind, a repository, pages written
by hand in `content/pages` and put into `docs_dir`, and a machine that is not the reference machine.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, mkdocs
from tests.site.conftest import CONFIGURATION
from tests.site.html_reading import Reading, read

CONFIGURED = """\
      machine: desk
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
ABOUT = """\
---
description: What this book is for.
---
# About this book

The whole model needs {{ tiny_memory.whole.ranks[0].memory.peak_bytes }} on `rank 0`.
See [the evidence](../evidence.md) and ![a picture](picture-2.svg).

```html
<table> {{ as.it.is }}
```
"""
DEMO = '<meta charset="utf-8"><style>p { color: red }</style><table><p>3'


def project(folder: Path, configured: str) -> Path:
    """A folder from which MkDocs builds the frozen book as configured."""
    shutil.copytree(ROOT / "tests" / "book" / "content", folder / "content")
    (folder / "pages").mkdir()
    text = CONFIGURATION.format(root=ROOT).replace(f"{ROOT}/tests/book/content", "content")
    (folder / "mkdocs.yml").write_text(text + configured, encoding="utf-8")
    return folder


def add_machine(folder: Path, name: str) -> None:
    """A machine of this name, with the reference machine's traces for its own."""
    traces = folder / "content" / "traces"
    (traces / name).mkdir()
    for path in (traces / "reference-frozen").glob("*.json"):
        text = path.read_text(encoding="utf-8").replace("reference-frozen", name)
        (traces / name / path.name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The project's folder, and what the build said."""
    folder = project(tmp_path_factory.mktemp("configured") / "book", CONFIGURED)
    add_machine(folder, "desk")
    guides = folder / "content" / "pages" / "guides"
    guides.mkdir(parents=True)
    (guides / "about.md").write_text(ABOUT, encoding="utf-8")
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


def edited(reading: Reading) -> str | None:
    """Where the edit link of a page leads."""
    found = [tag.attributes["href"] for tag in reading.tags if tag.attributes.get("rel") == "edit"]
    return found[0] if found else None


def test_the_header_leads_into_every_section_of_the_nav_and_marks_the_readers(built):
    assert words(page(built, "topics/sharding/deep.html")) == [
        ("Lessons", "experiment.html", "true"),
        ("Guides", "../../guides/about.html", ""),
        ("Evidence", "../../evidence.html", ""),
        ("Evidence", "../../evidence.html", ""),
        ("Links only", "https://example.org/outside", ""),
        ("Code", "https://example.org/code", ""),
        ("Mine", "../../mine.html", ""),
    ]
    current = {text: mark for text, _, mark in words(page(built, "guides/about.html")) if mark}
    assert current == {"Guides": "true"}
    current = {text: mark for text, _, mark in words(page(built, "mine.html")) if mark}
    assert current == {"Mine": "page"}


def test_edit_links_lead_to_what_an_author_wrote(built):
    base = "https://github.com/example/book/edit/main/"
    assert {
        name: edited(page(built, f"{name}.html"))
        for name in ("topics/sharding/experiment", "guides/about", "mine", "evidence/tiny_memory")
    } == {
        "topics/sharding/experiment": f"{base}content/topics/sharding/experiment.yml",
        "guides/about": f"{base}content/pages/guides/about.md",
        "mine": f"{base}pages/mine.md",
        "evidence/tiny_memory": None,
    }


def test_a_page_written_by_hand_shows_values_that_open_and_leaves_code_as_it_is(built):
    reading = page(built, "guides/about.html")
    value = next(text for text, inside in reading.texts if "pb-value" in inside[-1].classes)
    assert value == "160\u00a0KiB"
    opens = next(tag for tag in reading.tags if "data-v" in tag.attributes)
    assert opens.attributes["href"] == "../evidence/tiny_memory.html#whole"
    code = [text for text, inside in reading.texts if inside[-1].name == "code"]
    assert "<table> {{ as.it.is }}\n" in code
    assert {"../evidence.html", "picture-2.svg"} <= set(reading.links)
    assert (built[0] / "html" / "guides" / "picture-2.svg").is_file()
    index = json.loads((built[0] / "html" / "search" / "search_index.json").read_text("utf-8"))
    entry = next(one for one in index["docs"] if one["location"] == "guides/about.html")
    assert "The whole model needs" in entry["text"]
    assert "measured by the run" not in entry["text"]


def test_what_somebody_put_into_docs_dir_is_built_as_mkdocs_builds_it(built):
    assert "All 3 of them." in (built[0] / "html" / "mine.html").read_text(encoding="utf-8")
    assert (built[0] / "html" / "demo.html").read_text() == DEMO
