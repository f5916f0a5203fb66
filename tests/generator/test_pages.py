"""Pages: what a book looks like as Markdown; the same bytes for the same book."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from generator.content.listed_code import listed
from generator.pages import rendering
from tests.popovers import BLOCK

EXPERIMENT = "topics/sharding/experiment.md"
TRACE = "topics/averaging/trace.md"
ROOT = Path(__file__).parents[2]
INJECTED = "<script>alert('x')</script>"


@pytest.fixture(scope="session")
def rendered(book):
    return rendering.render(book)


@pytest.mark.builds
def test_the_same_book_gives_the_same_bytes_whatever_the_hash_seed():
    program = (
        "import hashlib, sys; from pathlib import Path; "
        "from generator.content import book; from generator.pages import rendering; "
        "found = book.load(Path(sys.argv[1]), 'reference-frozen', lambda _: False); "
        "out = rendering.render(found); "
        "print(hashlib.sha256(repr(sorted(out.items())).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, "tests/book/content"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(digests) == 1


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


def test_a_law_that_breaks_with_its_run_is_red_on_every_page_that_uses_it(copy):
    copy.change_run("tiny_memory.halves_budget", status="failed")
    text = rendering.render(copy.load())[EXPERIMENT]
    notices = text[text.index("pb-notice") : text.index("pb-foot")]
    assert "A run did not end as declared:" in notices
    assert "A law does not hold here:" in notices
    assert "Under the budget the split model completes." in notices
    assert 'pb-verdict pb-does-not-hold"' in text


def test_a_surprise_in_a_run_that_no_claim_needs_is_red_and_refused_when_strict(copy):
    copy.change_run("tiny_memory.whole", expected_status="out_of_memory")
    book = copy.load()
    text = rendering.render(book)[EXPERIMENT]
    notice = text.index("pb-notice pb-surprise")
    assert text.index("pb-lede") < notice
    assert "tiny_memory.whole" in text[notice : notice + 300]
    assert "expected out of memory, ended completed" in text[notice : notice + 300]
    assert any(
        "tiny_memory.whole: ended completed" in problem for problem in rendering.problems(book)
    )
    assert "A surprise" in rendering.render(book)["evidence.md"]
    assert "a surprise; expected out of memory" in rendering.render(book)["evidence/tiny_memory.md"]


def measured_on(text):
    line = re.search(r'<p class="pb-measured">(.*?)</p>', text)[1]
    return " ".join(re.sub(r"<[^>]+>", "", line).split())


def test_an_experiment_without_a_trace_here_comes_from_the_reference_and_the_foot_says_so(copy):
    copy.add_machine("cpu-mine", "tiny_memory")
    rendered = rendering.render(copy.load())
    assert measured_on(rendered[EXPERIMENT]) == "Measured on cpu-mine."
    assert measured_on(rendered[TRACE]) == "Measured on reference-frozen, the reference machine."
    assert "traces/reference-frozen/tiny_training.json" in rendered[TRACE]


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
