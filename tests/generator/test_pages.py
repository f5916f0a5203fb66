"""Pages: what a book looks like as Markdown; the same bytes for the same book."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from markupsafe import Markup

from generator.content.lesson import MODES
from generator.content.listed_code import listed, source
from generator.evidence.folio import escaped_heading
from generator.pages import rendering
from tests.popovers import BLOCK

GOLDEN = Path(__file__).parents[1] / "book" / "golden"
EXPERIMENT = "topics/sharding/experiment.md"
TRACE = "topics/averaging/trace.md"
DEEP = "topics/sharding/deep.md"
FROZEN = Path(__file__).parents[1] / "book" / "content"
ROOT = Path(__file__).parents[2]
INJECTED = "<script>alert('x')</script>"


@pytest.fixture(scope="session")
def rendered(book):
    return rendering.render(book)


def test_a_book_has_a_page_for_each_mode_summary_experiment_and_machine_and_seven_more(
    rendered, book
):
    topics = FROZEN / "topics"
    modes = {
        path.relative_to(FROZEN).with_suffix(".md").as_posix()
        for mode in MODES
        for path in topics.glob(f"*/{mode}.yml")
    }
    indexes = {f"topics/{path.name}/index.md" for path in topics.iterdir()}
    books = {
        "index.md", "evidence.md", "retracted.md", "topics/index.md", "machines/index.md",
        "glossary.md", "guide.md", "plan.md",
    }  # fmt: skip
    runs = {one.page.replace(".html", ".md") for one in book.traces.values()}
    machines = {f"machines/{name}.md" for name in book.machines}
    summaries = {f"topics/{topic.id}/summary.md" for topic in book.topics if topic.file.key_laws}
    assert len(summaries) == 1
    assert set(rendered) == books | indexes | modes | summaries | runs | machines
    assert {Path(page).stem for page in modes} == set(MODES)


def test_the_same_book_gives_the_same_bytes_whatever_the_hash_seed(rendered):
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


def test_the_home_page_of_the_frozen_book_is_what_it_was(rendered):
    """It has a question with its key, values, and a drawing."""
    page = "index.md"
    if os.environ.get("PROOFBOOK_WRITE_GOLDENS"):
        (GOLDEN / page).write_text(rendered[page], encoding="utf-8")
    assert rendered[page] == (GOLDEN / page).read_text(encoding="utf-8"), (
        "if the change is meant: PROOFBOOK_WRITE_GOLDENS=1 python -m pytest tests/generator"
    )


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


def test_a_heading_escapes_markdown_but_not_tags():
    assert escaped_heading("a_b") == "a&#95;b"
    assert "<code>" in escaped_heading(Markup("<code>x_y</code>"))
    assert "x&#95;y" in escaped_heading(Markup("<code>x_y</code>"))


def test_runs_of_one_strategy_are_told_apart_by_their_ranks_beside_a_figure_of_peaks(
    copy, rendered
):
    assert "one device, 2 ranks" not in rendered[EXPERIMENT]
    copy.change_run("tiny_memory.halves", strategy="single")
    text = rendering.render(copy.load())[EXPERIMENT]
    assert text.count("one device, 2 ranks · rank 0<") == 2, "in the table and beside the bar"
    assert text.count("one device, 2 ranks · rank 1<") == 1, "in the table alone"


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


def test_the_foot_says_which_runs_which_machine_when_which_torch_and_how_to_repeat(rendered, book):
    foot = rendered[EXPERIMENT].split('class="pb-foot"')[1]
    trace = book.traces["tiny_memory"].trace
    for told in (
        "whole_budget",
        trace.machine,
        "2 January 2026, 03:04:05 UTC",
        trace.circumstances.torch,
        "../../traces/reference-frozen/tiny_memory.json",
        ".venv/bin/python -m runners reproduce tiny_memory",
    ):
        assert told in foot


@pytest.mark.parametrize(
    "heading",
    ["A copy does not help", "Any strategy", "What copies are good for", "What holds here"],
)
def test_what_would_answer_the_first_question_of_an_experiment_waits(rendered, heading):
    text = rendered[EXPERIMENT]
    (asked,) = re.findall('data-item="([^"]+)"[^>]* data-as="commit"', text)
    assert f'## {heading}\n\n<div data-after="{asked}">\n' in text


@pytest.fixture
def deep(rendered):
    return rendered[DEEP]


def test_a_step_that_asks_before_reading_on_tells_only_after(deep):
    asked = deep.index('data-as="before"')
    waits = deep.index('<div data-after="who-fits">', asked)
    for told in ("Explanation</dt>", "Result</dt>", 'class="pb-eyebrow">Insight', "pb-waits"):
        assert waits < deep.index(told, asked) <= deep.index("pb-waits", asked)


def test_a_myth_is_revealed_after_the_commit_it_belongs_to(deep):
    myth = deep[deep.index("## Myths") :]
    assert myth.index('data-item="who-fits"') < myth.index('data-after="who-fits"')
    assert myth.index("### “") < myth.index("What a run showed</dt>")
    assert myth.index("The mechanism") < myth.index("Why it matters</dt>")


def test_a_figure_or_a_question_that_stands_twice_has_two_ids(deep):
    ids = re.findall(r' id="([^"]+)"', deep)
    assert len(ids) == len(set(ids))
    assert "item-who-fits-2" in ids
    assert "figure-idea-2" in ids


def test_the_digest_of_a_question_changes_with_its_revision_and_touches_no_other(copy, rendered):
    def digests(text):
        return dict(re.findall(r'data-item="([^"]+)" data-digest="([^"]+)"', text))

    before = digests(rendered[TRACE])
    changed = next(iter(before))
    file = copy.content / "topics" / "averaging" / "quiz.yml"
    written = yaml.safe_load(file.read_text())
    item = next(item for item in written["items"] if item["id"] == changed)
    item["options"][0]["why"] += " Really."
    file.write_text(yaml.safe_dump(written))
    assert digests(rendering.render(copy.load())[TRACE]) == before
    item["revision"] = 2
    file.write_text(yaml.safe_dump(written))
    after = digests(rendering.render(copy.load())[TRACE])
    assert {name for name in before if before[name] != after[name]} == {changed}


def test_each_option_explains_itself_and_one_of_them_is_right(rendered):
    for answers in re.findall(r'<ul class="pb-answers">(.*?)</ul>', rendered[TRACE], re.DOTALL):
        options = re.findall(r'data-verdict="(\w+)"', answers)
        assert options.count("right") == 1
        assert set(options) == {"right", "wrong"}
        assert len(
            re.findall(r'class="pb-why">(?!\s*<(?:/div|span class="pb-backed))', answers)
        ) == len(options)


def test_a_listing_is_the_files_own_text(rendered, tmp_path):
    shown = "content/code/a.py"
    (tmp_path / shown).parent.mkdir(parents=True)
    (tmp_path / shown).write_text(
        "import os\n\n\n@cache\ndef f():\n    return os\n\n\ndef g(): ...\n"
    )
    assert source(tmp_path, shown, "f") == "@cache\ndef f():\n    return os\n"
    assert source(tmp_path, shown, None).startswith("import os")
    with pytest.raises(ValueError, match="defines no 'h'"):
        source(tmp_path, shown, "h")
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
    assert source(tmp_path, path, None) == program


def test_evidence_lists_every_claim_and_every_run(rendered, book):
    text = rendered["evidence.md"]
    pages = "".join(page for path, page in rendered.items() if path.startswith("evidence/"))
    for claim in book.claims:
        assert f'id="claim-{claim}"' in pages
    for name, shown in book.traces.items():
        assert shown.is_plan or f'href="evidence/{name}.html"' in text
        for run in shown.trace.runs:
            assert f'id="run-{name}-{run}"' in rendered[shown.page.replace(".html", ".md")]


def test_no_page_carries_a_style_or_a_handler(rendered):
    for text in rendered.values():
        assert " style=" not in text
        assert not re.search(r"<[a-z]+[^>]* on[a-z]+=", text)
