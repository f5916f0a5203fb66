"""Listings: the file's own text, in colours, and two programs as the lines that differ."""

import re
from html import unescape

import pytest

from proofbook.generator.content.listed_code import listed
from proofbook.generator.pages.elements.programs import highlighted_lines, unified
from tests.conftest import ROOT

PAIRS = sorted(ROOT.glob("content/topics/*/code/*_wrong.py"))
HEAD = '"""Wrong.\n\ntorchrun a.py\n"""\n\n'


def shown(before, after):
    return unescape(re.sub(r"<[^>]+>", "", unified(before, after)))


def test_only_lines_that_differ_are_shown_with_two_of_context_and_their_number():
    before = HEAD + "".join(f"step_{n}()\n" for n in range(9))
    after = before.replace("Wrong", "Right").replace("step_6()", "other()")
    assert shown(before, after) == (
        "line 10\n  step_4()\n  step_5()\n- step_6()\n+ other()\n  step_7()\n  step_8()\n"
    )


def test_a_line_that_only_moves_in_is_shown_as_the_right_program_has_it():
    before = "for one in all:\n    go(one)\nend()\n"
    after = "with join():\n    for one in all:\n        go(one)\nend()\n"
    assert shown(before, after) == (
        "line 1\n+ with join():\n      for one in all:\n          go(one)\n"
    )


def test_where_most_differs_no_difference_is_shown():
    assert shown("".join(f"a{n}\n" for n in range(30)), "".join(f"b{n}\n" for n in range(30))) == ""


@pytest.mark.parametrize("wrong", PAIRS, ids=lambda path: path.stem)
def test_a_difference_holds_lines_of_the_wrong_program_where_it_says_and_of_the_right_one(wrong):
    before, after = (
        listed(ROOT, path.relative_to(ROOT).as_posix(), None)
        for path in (wrong, wrong.with_name(wrong.name.replace("_wrong", "_right")))
    )
    told = re.split(r"^line (\d+)\n", shown(before, after), flags=re.MULTILINE)[1:]
    for number, lines in zip(told[::2], told[1::2], strict=True):
        old, new = (
            [line[1:].strip() for line in lines.splitlines() if line[0] != mark] for mark in "+-"
        )
        start = int(number) - 1
        assert [line.strip() for line in before.splitlines()][start : start + len(old)] == old
        assert "\n".join(new) in "\n".join(line.strip() for line in after.splitlines())
        assert old != new


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
    assert '<span class="k">def</span>' in rendered["topics/sharding/experiment.md"]


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


def test_each_line_closes_what_it_opens():
    code = '"""A program\nwith a < b in its head.\n"""\n\nimport time  # now\n\nprint("a & b")\n'
    lines = highlighted_lines(code)
    assert sum("<span" in line for line in lines) >= 5
    assert [line for line in lines if line.count("<span") != line.count("</span>")] == []
