"""A watched script on its page, the page of the book that shows one, and the table of causes."""

import re
import shutil

import pytest

from proofbook.generator.content.reading import load
from proofbook.generator.figures.drawing import NARROW
from proofbook.generator.figures.drawings.strip import Bar, strip
from proofbook.generator.pages.views.watched import GROUPS
from proofbook.runners.verify.report import causes
from tests.generator.conftest import CONTENT, fresh, render

NAME = "norms_twice"
PAGE = f"""---
title: Verify
description: It
---
```verified
path: content/verified/{NAME}.py
title: Norms
```
"""


@pytest.fixture
def watched(copy):
    """The frozen book with a page that shows a report, a run of a reader's, and odd files."""
    shutil.copytree(CONTENT / "verified", copy.content / "verified")
    (copy.content / "pages" / "verify.md").write_text(PAGE)
    (copy.content / "tries").mkdir()
    trace = (CONTENT / "verified" / f"{NAME}.json").read_text()
    (copy.content / "tries" / "own-1.verify.json").write_text(trace)
    (copy.content / "tries" / "cut.verify.json").write_text(trace[:200])
    (copy.content / "tries" / "edited.verify.json").write_text(
        trace.replace('"rank": 0', '"rank": 1')
    )
    return copy


def _served(copy):
    return render(load(copy.content, None, fresh, with_tries=True))


def test_a_watched_script_has_a_page_with_verdict_then_findings_then_the_first_tensor_that_differs(
    watched,
):
    page = _served(watched)["verify/own-1.md"]
    verdict = page.index('pb-does-not-hold">differs</strong>')
    finding = page.index("Gradients of normalizations too large by the ranks</a></h2>")
    drawn = page.index("10 agree, 4 differ. The first that differs: 1.norm.weight.</desc>")
    first = page.index('pb-does-not-hold">differs</span>')
    row = page.rindex('<th scope="row">', 0, first)
    assert verdict < finding < drawn < row
    assert re.sub(r"<[^>]+>", "", page[row:].partition("</th>")[0]) == "1.norm.weight"
    assert page.count('pb-does-not-hold">differs</span>') == 4


def test_the_page_of_the_book_lists_own_runs_and_names_what_cannot_be_read_only_while_serving(
    watched,
):
    page = _served(watched)["verify.md"]
    assert 'href="verify/own-1.html"' in page
    lines = [one for one in page.splitlines() if "Not shown: " in one]
    assert "content/tries/cut.verify.json: not a whole JSON file" in lines[0]
    assert "content/tries/edited.verify.json: edited or cut" in lines[1]
    published = render(watched.load())
    assert "verify/own-1.md" not in published
    assert "own-1" not in published["verify.md"]
    assert "Not shown" not in published["verify.md"]


def test_the_report_of_the_book_stands_as_printed_and_each_cause_once_in_the_order_of_groups(
    watched,
):
    page = render(watched.load())["verify.md"]
    printed = re.sub(r"<[^>]+>", "", page)
    assert "verify: differs (gradients of normalizations too large by the ranks)\n" in printed
    rows = re.findall(r'<tr id="cause-[^"]+"><th scope="row">(.*?)</th>', page)
    assert rows == [
        one.title.replace("'", "&#39;")
        for group in GROUPS for one in causes().values() if one.group == group
    ]  # fmt: skip
    assert len(rows) == len(causes())


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda folder: (folder / f"{NAME}.py").write_text("pass\n"), "is another program now"),
        (lambda folder: (folder / f"{NAME}.json").unlink(), "no report of `verify` lies beside it"),
        (lambda folder: (folder / f"{NAME}.json").write_text("{"), "not a whole JSON file"),
    ],
)
def test_a_report_that_is_not_of_the_program_on_the_page_is_refused(watched, break_it, says):
    break_it(watched.content / "verified")
    assert says in " ".join(watched.errors())


def test_a_bar_crosses_the_dashed_line_where_its_tensor_differs_and_only_there():
    times = (0.0, 1e-9, 0.99, 1.01, 40.0, 1e9, None)
    drawn = strip([Bar(f"t{one}", "", one) for one in times], "allowed", NARROW)
    tops = [float(y) for y in re.findall(r'<rect [^>]*? y="([\d.]+)"', "".join(drawn.parts))]
    (line,) = {
        float(y)
        for y in re.findall(r'<line class="pb-budget" x1="0" y1="([\d.]+)"', "".join(drawn.parts))
        if float(y) < 130
    }
    assert [top < line for top in tops] == [False, False, False, True, True, True, False]
    assert ">t1.01</text>" in "".join(drawn.parts)
