"""Broken and hostile files of content: one clear line with the place, exit code 2, no hang."""

import html
import json
import os
import re
import socket
from pathlib import Path

import pytest

from generator.__main__ import main
from generator.content import prose
from generator.content.errors import MAX_CHARACTERS, ContentError
from generator.content.words import MAX_PROSE

HOME, LEARN = "home.yml", "topics/averaging/learn.yml"
TITLE, IDEA = "title: A tiny book", "idea: After each backward pass"
LOSS = "tiny_training.averaged.epochs[-1].loss"
PLACE = re.compile(r"content/[^:]+(:\d+){0,2}: \S.*")


@pytest.fixture
def refused(copy, capsys):
    """The lines of `python -m generator check` on a copy that it has to refuse."""

    def told():
        assert main(["check", "--content", str(copy.content)]) == 2
        *lines, num = capsys.readouterr().err.splitlines()
        assert num == f"{len(lines)} mistake{'s' * (len(lines) > 1)} in the content"
        for line in lines:
            assert PLACE.fullmatch(line), line
            assert line.isprintable(), line
            assert len(line) < MAX_CHARACTERS + 200
        return lines

    return told


def write(copy, text, file=HOME):
    path = copy.content / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def home_with(copy, line):
    return (copy.content / HOME).read_text().replace(TITLE, line)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1e308*1e308", "not finite"),
        ("1e308*1e308*0", "not finite"),
        (f"{LOSS}*1e308*1e308", "not finite"),
        ("rank(1e308*1e308)", "not finite"),
        ("ring_bytes(1e308*1e308, 2)", "not finite"),
        ("1e999", "beyond what can be calculated"),
        ("-1e999", "beyond what can be calculated"),
        ("9**9**9", "a power"),
        ("1/0", "divides by zero"),
        (f"{LOSS}/0", "divides by zero"),
        ("ring_bytes(4, 0)", "divides by zero"),
        ("nan", "unknown name"),
        ("inf", "unknown name"),
        ("1e٣", "a number is written in the digits 0 to 9"),
        (f"{LOSS}[0]", "a single value"),
        ("(" * 95 + "1" + ")" * 95, "not an expression"),
        ("-" * 5000 + "1", "longer than 240 characters"),
        ("x" * 5000, "longer than 240 characters"),
    ],
)
def test_arithmetic_that_leaves_what_can_be_printed_is_one_line(copy, refused, expression, said):
    copy.edit(LEARN, IDEA, f'idea: "{{{{ {expression} }}}}')
    copy.edit(LEARN, "the mean of all gradients.", 'the mean of all gradients."')
    (line,) = refused()
    assert line.startswith(f"content/{LEARN}:10:11: ")
    assert said in line


@pytest.mark.parametrize("side", ["predicted", "observed"])
@pytest.mark.parametrize("expression", ["1e308*1e308", "1e٣", "1/0"])
def test_the_same_in_a_claim(copy, refused, side, expression):
    copy.edit("claims/tiny_memory.yml", f"    {side}: ", f"    {side}: {expression} #")
    assert any(line.startswith("content/claims/tiny_memory.yml:") for line in refused())


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("x: " + "[" * 100_000, "18:44", "nested more than 40 deep"),
        ("x: " + "{a: " * 50_000, "18:161", "nested more than 40 deep"),
        ("x:\n  " + "- " * 20_000 + "a", "19:83", "nested more than 40 deep"),
        ("? " * 20_000, "18:83", "nested more than 40 deep"),
        ("x: " + "[" * 60 + "]" * 60, "18:44", "nested more than 40 deep"),
        ("x: &a [b]\ny: [*a, *a]", "18:4", "anchors and aliases are not used"),
        ("<<: {title: x}", "18:1", "merge keys are not used"),
        ("title: Another", "18:1", "duplicate key 'title'"),
        ("x: !!python/object/apply:os.system [ls]", "18:4", "is not used here"),
        ("x: !!binary aGk=", "18:4", "is not used here"),
        ("x: !!set {a, b}", "18:4", "is not used here"),
        ("---\ntitle: x", "18:1", "keep one document to a file"),
        ("\tx: 1", "18:1", "write spaces, not a tab"),
        ("5: x", "18:1", "unknown key '5'"),
        ("? [a]\n: x", "18:3", "a key must be a word"),
    ],
)
def test_yaml_that_would_end_or_fool_the_parser_is_one_line(copy, refused, text, place, said):
    copy.append(HOME, f"{text}\n")
    lines = refused()
    assert any(line.startswith(f"content/{HOME}:{place}: ") and said in line for line in lines)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("title: ti\x00ny", "1:10: not YAML: a control character (U+0000); delete it"),
        ("title: ti\x1b[mny", "1:10: not YAML: a control character (U+001B); delete it"),
        ('title: "ti\\0ny"', "1:11: an invisible character (U+0000); delete it"),
        ('title: "ti\\ud800ny"', "1:8: half a character (a surrogate); delete it"),
        ("title: !!float nan", None),
        ("title: !!map x", "1:8: the tag 'tag:yaml.org,2002:map' is not used here"),
        (f"title: {'9' * 100_000}", "1:8: title: must have at most 1000 characters"),
        (f"title: {'word ' * 40_000}", "1:8: title: must have at most 1000 characters"),
    ],
)
def test_a_value_that_is_no_text_is_placed(copy, refused, line, said):
    write(copy, home_with(copy, line))
    if said is None:
        assert copy.errors() == []
    else:
        assert refused() == [next(one for one in refused() if one.startswith("content/"))]
        assert refused()[0].startswith(f"content/{HOME}:{said}")


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8-sig", None),
        ("utf-16", "1:1: cannot be read: not UTF-8 (byte 0xff); save the file as UTF-8"),
        ("utf-16-le", "1:21: cannot be read: not UTF-8 (byte 0xed)"),
        ("utf-32", "1:1: cannot be read: not UTF-8"),
        ("latin-1", "1:11: cannot be read: not UTF-8 (byte 0xed); save the file as UTF-8"),
    ],
)
def test_another_encoding_is_named(copy, refused, encoding, said):
    write(copy, home_with(copy, "title: A tíny book").encode(encoding))
    if said is None:
        assert copy.errors() == []
    else:
        assert refused()[0].startswith(f"content/{HOME}:{said}")


def test_an_introduction_of_two_hundred_thousand_characters_is_refused_at_once(copy, refused):
    copy.edit(LEARN, "introduction: Two ranks", f"introduction: {'word ' * 40_000}Two ranks")
    said = f"introduction: must have at most {MAX_PROSE} characters"
    assert refused() == [f"content/{LEARN}:2:15: {said}"]


def test_a_file_without_end_in_sight_is_not_read(copy, refused):
    copy.append(HOME, "# " + "x" * 3_000_000)
    assert refused() == [f"content/{HOME}: longer than 2,000,000 bytes; split it"]


@pytest.mark.parametrize(
    "text", ["> " * 13 + "a", "- " * 8 + "a", "".join("  " * i + "- a\n" for i in range(20))]
)
def test_nested_lists_and_quotes_are_refused_before_markdown_drops_them(copy, refused, text):
    copy.edit(HOME, "numbers: Each number was measured by a run.", f"numbers: {json.dumps(text)}")
    (line,) = refused()
    assert line.startswith(f"content/{HOME}:15:")
    assert "nested too deeply" in line


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def bound(path):
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's whole path may be too long
        try:
            listening.bind(path.name)
        finally:
            os.chdir(here)


def outward(path):
    path.symlink_to("/etc/hostname")


def to_itself(path):
    path.symlink_to(path.name)


def a_folder(path):
    path.mkdir()


STRANGE = {
    pipe: "a named pipe, not a file",
    bound: "a socket, not a file",
    endless: "a link that leads out of content/",
    outward: "a link that leads out of content/",
    to_itself: "a link that leads nowhere",
}
FILES = [
    HOME, LEARN, "topics/averaging/topic.yml", "topics/averaging/quiz-more.yml",
    "topics/averaging/code/mean.py", "claims/tiny_memory.yml", "claims/more.yml", "references.yml",
    "references-more.yml", "pages/about.md", "pages/picture.png", "traces/this-machine",
    "traces/reference-frozen/tiny_memory.json", "traces/reference-frozen/machine.json",
    "traces/reference-frozen/primitives.json", "traces/reference-frozen/more.json",
]  # fmt: skip


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("make", STRANGE, ids=lambda make: make.__name__)
def test_what_is_no_file_of_the_content_is_refused_by_name(copy, refused, file, make):
    path = copy.content / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    assert any(line.startswith(f"content/{file}: {STRANGE[make]}") for line in refused())


@pytest.mark.parametrize("file", [HOME, LEARN, "traces/reference-frozen/tiny_memory.json"])
def test_a_folder_in_the_place_of_a_file_is_refused_by_name(copy, refused, file):
    (copy.content / file).unlink()
    a_folder(copy.content / file)
    assert any(line.startswith(f"content/{file}: a folder, not a file") for line in refused())


def test_a_folder_that_is_a_link_stays_in_the_content(copy, refused, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (copy.content / "topics" / "other").symlink_to(tmp_path / "elsewhere")
    (copy.content / "topics" / "again").symlink_to(copy.content)
    lines = refused()
    assert "content/topics/again: a link to a folder that it stands in; delete it" in lines
    assert (
        "content/topics/other: a link that leads out of content/; put a copy in its place" in lines
    )


def test_a_link_inside_the_content_is_a_file_like_others(copy):
    (copy.content / HOME).rename(copy.content / "first.yml")
    (copy.content / HOME).symlink_to("first.yml")
    assert copy.errors() == []


def test_what_an_editor_hides_is_left_alone(copy):
    for folder in ("claims", "topics/averaging", "traces/reference-frozen", "pages"):
        (copy.content / folder).mkdir(exist_ok=True)
        for name in (".#tiny.yml", ".#tiny.json", ".#tiny.md"):
            (copy.content / folder / name).symlink_to("somebody@a.desk:1")
    assert copy.errors() == []


@pytest.mark.parametrize("name", ["../../etc", "/etc", "nosuch", "a\nb"])
def test_a_machine_is_a_folder_of_traces_whatever_it_is_called(copy, capsys, name):
    assert main(["check", "--content", str(copy.content), "--machine", name]) == 2
    first, *_ = capsys.readouterr().err.splitlines()
    assert "no such machine" in first


@pytest.mark.parametrize(
    "path",
    [
        "../../runners/experiments/ddp/strategies.py", "content/../pyproject.toml",
        "/etc/hostname", "pyproject.toml", "generator/ui.yml", "tests/conftest.py",
        "content/topics/averaging/learn.yml", "content/traces/reference-frozen/machine.json",
        "runners/experiments/../../pyproject.toml", "runners/experiments/../x.py", "", ".", "\0",
    ],
)  # fmt: skip
def test_a_listing_names_code_that_runs_execute_and_no_other_file(copy, refused, path):
    copy.edit(LEARN, "path: content/topics/averaging/code/mean.py", f"path: {json.dumps(path)}")
    lines = refused()
    assert any("is no code that a run executes" in line for line in lines), lines


def test_code_that_is_a_link_stays_where_code_of_runs_stands(copy, refused):
    code = copy.content / "topics" / "averaging" / "code" / "mean.py"
    code.unlink()
    code.symlink_to(copy.content / HOME)
    assert any("no file 'content/topics/averaging/code/mean.py'" in line for line in refused())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title: PyTorch Distributed", "title: '{{ nosuch }}'", "{{ has no meaning here"),
        ("says: Gradients", "says: '{% for %}' # ", "{% has no meaning here"),
        ("says: Gradients", 'says: "a\\u202eb" # ', "an invisible character (U+202E)"),
        ("url: https://arxiv", "url: https://me@arxiv", "a source is linked by https"),
        ("url: https://arxiv", "url: https:///arxiv", "a source is linked by https"),
        ("url: https://arxiv", 'url: "https://a\\tb', None),
    ],
)
def test_what_is_cited_prints_as_it_stands(copy, refused, old, new, said):
    copy.edit("references.yml", old, new)
    if said is None:
        copy.edit("references.yml", ".org/abs/2006.15704", '.org"')
    lines = refused()
    assert all(line.startswith("content/references.yml:") for line in lines)
    assert any((said or "an invisible") in line or "linked by https" in line for line in lines)


@pytest.mark.parametrize(
    "target",
    [
        "javascript:x", "JaVaScRiPt:x", "java&#115;cript:x", "java&#x73;cript:x",
        "javascript&colon;x", "javascript\\:x", "&Tab;javascript:x", "java&Tab;script:x",
        "java&NewLine;script:x", "%6aavascript:x", "&#0;javascript:x", "\x01javascript:x",
        "vbscript:x", "data:text/html,x", "DATA:x", "blob:x", "file:///etc/hostname", "ftp://a.org",
        "http://a.org", "https://", "https:a.org", "https://me@a.org", "https://a.org\\@b.org",
        "https://a.org\u202e/x", "//a.org", "/a", "\\\\\\\\a.org", "/\\a.org", "&sol;/a.org",
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", ["[x]({})", "[x][y]\n\n[y]: {}", "<{}>"])
def test_a_link_is_relative_or_https_however_it_is_written(target, text):
    if text == "<{}>" and not re.match(r"[A-Za-z]+:", target):
        return
    found = prose.faults(text.format(target))
    assert found
    assert all(0 <= fault.offset < len(text.format(target)) for fault in found)


@pytest.mark.parametrize(
    "text", ["[x](java\tscript:x)", "[x](<java\nscript:x>)", "[x](a b)", "[x](javascript:x"]
)
def test_brackets_that_make_no_link_are_not_printed(text):
    assert any("link" in fault.message for fault in prose.faults(text))


@pytest.mark.parametrize("text", ["![x](https://a.org/x.png)", "![x](x.png)", "![x][y]\n\n[y]: x"])
def test_an_image_has_no_place_in_a_lesson(text):
    (fault, *_) = prose.faults(text)
    assert fault.message.startswith("an image; lessons show figures")


@pytest.mark.parametrize(
    ("link", "is_out"),
    [
        ("learn.html", False), ("../averaging/learn.html", False), ("../../index.html", False),
        ("#here", False), ("../../../x.html", True), ("a/../../../../x.html", True),
        ("..%2f..%2f..%2fx.html", True), ("../../..", True), ("./../../../x", True),
    ],
)  # fmt: skip
def test_a_relative_link_stays_in_the_site(copy, link, is_out):
    copy.edit(LEARN, IDEA, f"idea: See [it]({link}). After each backward pass")
    found = [error for error in copy.errors() if "leads out of the site" in error]
    assert bool(found) == is_out
    assert all(error.startswith(f"content/{LEARN}:10:16: ") for error in found)


@pytest.mark.parametrize(
    "word",
    ["0x1F", "0XFF", "0b11", "0o17", "fp३२", "x⁵", "½x", "x½", "五", "x①", "𝟏", "Ⅴ", "߁", "一つ"],
)
def test_a_digit_of_any_script_or_base_is_a_numeral(word):
    (fault, *_) = prose.faults(f"It is {word} of it.")
    assert fault == (6, fault.message)
    assert fault.message.startswith("bare numeral")


@pytest.mark.parametrize(
    "letter",
    [
        "\0", "\x07", "\x0b", "\x1b", "\x7f", "\x85", "\x9b", "\u061c", "\u200e", "\u200f",
        "\u2028", "\u2029", "\u202a", "\u202e", "\u2061", "\u2066", "\u2069", "\u206a", "\u034f",
        "\u115f", "\u3164", "\u2800", "\u180e", "\ufe0f", "\ufff9", "\ufffe", "\U000e0041",
        "\U000e0101", "\U000f0000", "\U0010ffff",
    ],
)  # fmt: skip
def test_a_character_that_nobody_sees_is_refused_in_text_and_code(letter):
    for text in (f"an {letter} end", f"`an {letter} end`", f"an &#{ord(letter)}; end"):
        found = prose.faults(text)
        if "&#" in text and not html.unescape(text).count(letter):
            continue  # HTML knows it by another name, or not at all
        assert any("invisible" in one.message or "private" in one.message for one in found), text


@pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0xFFFD])
def test_half_a_character_and_what_stands_for_a_broken_one_are_refused(code):
    assert any("invisible" in one.message for one in prose.faults(f"an {chr(code)} end"))


def test_a_message_is_one_line_that_hides_nothing():
    error = ContentError("content/a\nb.yml", 1, 2, "a\nb\x1b[31m\u202e" + "x" * 10_000)
    assert "\n" not in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < MAX_CHARACTERS + 100
