"""Broken and hostile traces: one clear line that names file and field; their text is only text."""

import contextlib
import json
import re

import pytest

from generator.__main__ import main
from generator.content.errors import ContentErrors
from generator.pages.press import Press
from runners.traces.files import MAX_READ_BYTES

TRACE = "traces/reference-frozen/tiny_memory.json"
QUESTION = "Which split of a tiny model fits a tiny budget?"
RUNS = "evidence/tiny_memory.md"
EVIL = '<script>alert(x)</script><img src=q onerror=alert(x)> & "quo\'te" *a* [b](javascript:c) `d`'
ASKING = "{{ nosuch }} {{ tiny_memory.whole }} {% if %} }} {#"


@pytest.fixture
def spoil(copy):
    """Replace a part of the text of a trace."""

    def spoilt(old, new):
        path = copy.content / TRACE
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return spoilt


def asks(spoil, question):
    spoil(json.dumps(QUESTION), json.dumps(question))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"machine":', '"machine": "x", "machine":', "the key 'machine' stands twice"),
        ('"backend"', '"backend": "x", "backend"', "the key 'backend' stands twice"),
        ('"world_size": 1', '"world_size": Infinity', "bare Infinity is not JSON"),
        ('"world_size": 1', '"world_size": -Infinity', "bare -Infinity is not JSON"),
        ("0.0021", "NaN", "bare NaN is not JSON"),
        ("0.0021", "1e999", "samples.0: input should be a finite number"),
        ("0.0021", "-1e999", "samples.0: input should be a finite number"),
        ("80000", "9" * 100_000, "a number of 100000 digits"),
        ("80000", "80000.0", "runs.halves.model.bytes: input should be a valid integer"),
        ("Which split", "Which \\ud800 split", "question: half a character"),
        ('"halves": {', '"hal\\udfffves": {', r"runs.hal\udfffves: half a character"),
        ('"metered": ', '"x": ' + "[" * 100_000, "recursion"),
        ('"metered": ', '"x": ' + '{"a": ' * 100_000, "recursion"),
        (
            '"metered": ',
            f'"x": {"[" * 800}{"]" * 800}, "metered": ',
            "allocator.x: input should be",
        ),
        ('"halves": {', '"a.b": {', "runs.a.b: a run's name is made of"),
        ('"halves": {', '"<b>": {', "runs.<b>: a run's name is made of"),
        ('"halves": {', '"{{ x }}": {', "runs.{{ x }}: a run's name is made of"),
        ('"halves": {', '"": {', "runs.: a run's name is made of"),
        ("tiny model fits", "tiny mo\x00del fits", "Invalid control character at: line "),
    ],
)
def test_json_that_would_mislead_is_one_line(copy, spoil, capsys, old, new, said):
    spoil(old, new)
    assert main(["check", "--content", str(copy.content)]) == 2
    line, *_ = capsys.readouterr().err.splitlines()
    assert re.match(rf"content/{TRACE}(:\d+)?: ", line)
    assert said in line


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (b"", "Expecting value: line 1"),
        (b"null", "(whole file)"),
        (b"[]", "(whole file)"),
        (b"{}", "missing"),
        (b"\xef\xbb\xbf{}", "Unexpected UTF-8 BOM"),
        ("{}".encode("utf-16"), "'utf-8' codec can't decode byte 0xff"),
        (b"{} {}", "Extra data: line 1"),
        (b"// x\n{}", "Expecting value: line 1"),
        (b" " * (MAX_READ_BYTES + 1), "longer than 4,000,000 bytes"),
    ],
)
def test_a_file_that_is_no_trace_is_one_line(copy, capsys, held, said):
    (copy.content / TRACE).write_bytes(held)
    assert main(["check", "--content", str(copy.content)]) == 2
    line, *_ = capsys.readouterr().err.splitlines()
    assert re.match(rf"content/{TRACE}(:1)?: ", line)
    assert said in line or "schema_version" in line


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_torn_trace_names_the_line(copy, share):
    path = copy.content / TRACE
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    (error,) = copy.errors()
    assert re.search(r"not a whole JSON file \(.* line \d+ column \d+", error)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Do 4 of them fit?", "bare numeral '4'; the experiment's QUESTION"),
        ("{{ 7*7 }}", "bare numeral '7'"),
        ("Do ½ of them fit?", "bare numeral '½'"),
        ("Do 0x1F of them fit?", "bare numeral '0x1F'"),
        ("Do they\u202efit?", "an invisible character (U+202E)"),
        ("Do they\0fit?", "an invisible character (U+0000)"),
        ("Do they\u2028fit?", "an invisible character (U+2028)"),
        ("\ue000\ue100\ue001", "private-use characters"),
        ("word " * 40_000, "longer than 1,000 characters"),
    ],
)
def test_what_a_trace_says_in_prose_obeys_the_rules_of_prose(copy, spoil, question, said):
    asks(spoil, question)
    assert any(
        error.startswith(f"content/{TRACE}: question: ") and said in error
        for error in copy.errors()
    )


@pytest.mark.parametrize("question", [EVIL, ASKING, "Line\n\n## another\n\n    code", "", "a {{ b"])
def test_what_a_trace_says_is_printed_and_never_evaluated(copy, spoil, question):
    asks(spoil, question)
    assert copy.errors() == []
    pages = {name: page.decode() for name, page in Press().printed(copy.load()).items()}
    for name, page in pages.items():
        assert "<script>alert" not in page, name
        assert "<img src=q" not in page, name
        assert 'href="javascript' not in page, name
        assert "<em>a</em>" not in page, name
    if question == ASKING:
        assert "{{ nosuch }} {{ tiny_memory.whole }} {% if %}" in pages[RUNS]


def test_no_text_of_a_trace_is_evaluated_wherever_it_stands(copy, spoil):
    def spoilt(thing, key=""):
        if isinstance(thing, dict):
            return {name: spoilt(one, name) for name, one in thing.items()}
        if isinstance(thing, list):
            return [spoilt(one, key) for one in thing]
        return (
            f"{thing} {ASKING} \x1b\u202e"
            if thing and key in ("reason", "message", "cpu")
            else thing
        )

    for path in (copy.content / "traces" / "reference-frozen").glob("*.json"):
        path.write_text(json.dumps(spoilt(json.loads(path.read_text()))))
    assert copy.errors() == []
    pages = "".join(page.decode() for page in Press().printed(copy.load()).values())
    assert "{{ nosuch }}" in pages
    assert "\x1b" not in pages
    assert "\u202e" not in pages
    assert r"\u001b\u202e" in pages


def test_a_machine_and_an_experiment_are_called_by_plain_names(copy, capsys):
    folder = copy.content / "traces" / "reference-frozen"
    (folder / "{{ 7*7 }}.json").write_text(
        (folder / "tiny_memory.json").read_text().replace("tiny_memory", "{{ 7*7 }}")
    )
    errors = copy.errors()
    assert any("experiment: a name is made of small letters" in error for error in errors)


@pytest.mark.parametrize("number", ["1.7e308", "-1e300", f"1{'0' * 305}.0"])
def test_a_number_that_arithmetic_would_leave_is_refused(copy, spoil, number):
    spoil("0.0021", number)
    (error,) = copy.errors()
    assert "beyond what can be calculated with" in error


def test_the_largest_numbers_that_a_trace_may_hold_are_printed_and_drawn(copy):
    path = copy.content / "traces" / "reference-frozen" / "tiny_training.json"
    text = re.sub(r'loss": [\d.]+', 'loss": 9.9e299', path.read_text())
    path.write_text(text)
    assert not [error for error in copy.errors() if error.startswith("content/traces")]
    with contextlib.suppress(ContentErrors):  # an item may now give its key away
        assert Press().printed(copy.load())
