"""Pages: what a book looks like as Markdown; the same bytes for the same book."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from generator.content.listed_code import listed
from tests.generator import rendering
from tests.popovers import BLOCK

EXPERIMENT = "topics/sharding/experiment.md"
ROOT = Path(__file__).parents[2]
INJECTED = "<script>alert('x')</script>"


@pytest.fixture(scope="session")
def rendered(book):
    return rendering.render(book)


def test_a_script_in_any_text_of_the_book_is_shown_as_text(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")  # where no writing is judged
    changed = 0
    for document in copy.load().documents:
        file = copy.content.parent / document.source.file
        written = yaml.safe_load(file.read_text(encoding="utf-8"))
        for field in document.fields:
            if field.mark in ("line", "prose"):
                place = written
                for key in field.path[:-1]:
                    place = place[key]
                place[field.path[-1]] += f" {INJECTED}"
                changed += 1
        file.write_text(yaml.safe_dump(written), encoding="utf-8")
    assert changed > 50
    for page, text in rendering.render(copy.load()).items():
        assert "<script" not in text.rpartition('<script type="application/json"')[0], page
        assert "<script" not in "".join(one[1] for one in BLOCK.finditer(text)), page
        if page != "topics/index.md" and not page.startswith(("evidence/", "machines/")):
            assert "alert(" in text, page


def test_markdown_in_a_title_stays_text_in_the_heading(copy):
    copy.edit(
        "topics/sharding/experiment.yml", "title: Splitting a model", 'title: "a_b_c [x](y)# *z"'
    )
    text = rendering.render(copy.load())[EXPERIMENT]
    heading = next(line for line in text.splitlines() if line.startswith("# "))
    assert not re.search(r"(?<!&)[_*\[\]()`](?![^<]*>)", heading.removeprefix("# "))


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
    assert '<span class="k">def</span>' in rendered[EXPERIMENT]


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
