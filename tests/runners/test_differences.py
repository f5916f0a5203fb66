"""Programs that are stored as differences: what changes do, and the message of a misfit."""

import pytest

from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces.differences import MisfitError, changed, wrong_programs

PROGRAM = """def total(values):
    result = 0
    for value in values:
        result += value

    return result


def mean(values):
    result = total(values)

    return result / len(values)
"""
STATED = """programs:
  one:
    mistake: A.
    fails: same
    changes: |
      -def mean(values):
      +def mean(lines):
"""


def test_lines_stay_go_and_come_in_and_a_change_may_span_lines():
    changes = """@    for value in values:
-        result += value
+        result -= value

-def mean(values):
-...
-    return result / len(values)
+mean = total
"""
    first, _, _ = PROGRAM.partition("\n\n\n")
    expected = f"{first}\n\n\nmean = total\n".replace("+= value", "-= value")
    assert changed(PROGRAM, changes) == expected
    assert changed(PROGRAM, "-\n-\n-def mean(values):\n-...") == f"{first}\n"
    assert changed(PROGRAM, "") == PROGRAM


@pytest.mark.parametrize(
    ("changes", "line", "says"),
    [
        ("-    result = 1\n", 0, "'result = 1' is no line of the program; copy it from there"),
        ("@def mean(values):\n-  result = total(values)\n", 1, "'result = total(values)' is no"),
        ("-    return result\n-def mean(values):\n", 0, "but not together"),
        ("-        result += value\n-...\n-def total(values):\n", 0, "but not together"),
        ("-    result = 0\n\n@\n+    pass\n", 2, "'' stands in lines 5, 7, 8, 11 of the program"),
        ("+    result = 1\n", 0, "mark lines with @ or -, and behind them those to add with +"),
        ("-    result = 0\n     result = 1\n", 1, "mark lines with"),
        ("-    result = 0\n\n-    result = 0\n", 2, "another change has these lines"),
    ],
)
def test_a_change_that_misfits_is_told_with_its_line(changes, line, says):
    with pytest.raises(MisfitError) as told:
        changed(PROGRAM, changes)
    assert told.value.line == line
    assert says in str(told.value)


def test_a_command_tells_where_a_wrong_program_misfits(tmp_path):
    (tmp_path / "solved.py").write_text(f'"""Right."""\n\n{PROGRAM}')
    file = tmp_path / "wrong.yml"
    file.write_text(f"{STATED}      -    result = 1\n")
    (program,) = wrong_programs(file)
    with pytest.raises(FixableError, match=r"wrong.yml:8:7: 'result = 1' is no line of the"):
        _ = program.text
    file.write_text(f"{STATED}    ends: hung\n")
    (program,) = wrong_programs(file)
    assert program.text.startswith('# fails: same\n# ends: hung\n"""A."""\n\ndef total')
    assert program.path == tmp_path / "wrong" / "one.py"
    for text in (
        "",
        "programs: [1]",
        "programs: {one: {mistake: A.}}",
        STATED.replace("fails", "f"),
    ):
        file.write_text(text)
        with pytest.raises(FixableError, match=r"wrong.yml: it is not as such a file is written"):
            wrong_programs(file)
