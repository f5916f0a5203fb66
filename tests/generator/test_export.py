"""Questions as files of other programs, read back with the keys of their verdicts, and the class.

Of QTI there is no light reader, so the standard library reads what the specifications name. GIFT is
read by `make audit`.
"""

import io
import re
import sqlite3
import zipfile
from contextlib import closing
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from proofbook.companions.export import formats, lecture
from proofbook.companions.export.lecture import LINES, on_slides
from proofbook.companions.export.questions import BareFolio, questions
from proofbook.generator.content.listed_code import text as text_of_program
from proofbook.generator.pages.elements import programs as listing
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.evaluation import Evidence
from tests import exported
from tests.exported import bare, made
from tests.generator.test_main import run  # noqa: F401  (a fixture)


@pytest.fixture(scope="module")
def real_evidence(real):
    return Evidence(real)


@pytest.fixture(scope="module")
def found(real_evidence):
    return questions(real_evidence, real_evidence.book.topics)[0]


@pytest.fixture(scope="module")
def keys(real_evidence):
    return exported.keys(real_evidence)


def test_a_package_of_qti_holds_every_question_with_its_key(found, keys, real_evidence):
    content, kept = made("qti-1.2", found, real_evidence)
    package = zipfile.ZipFile(io.BytesIO(content))
    manifest = ET.fromstring(package.read("imsmanifest.xml"))
    listed = {one.get("href") for one in manifest.iter() if one.tag.endswith("}file")}
    assert listed == {*package.namelist()} - {"imsmanifest.xml"}
    read = {}
    for root in (ET.fromstring(package.read(one)) for one in listed if one.endswith(".xml")):
        for one in root.iter():
            one.tag = one.tag.rpartition("}")[2]
        for one in root.iter("item"):
            read[one.get("ident")] = qti_key(one)
    assert read.keys() == {one.id for one in kept}
    for name, key in read.items():
        _, right = keys[name]
        assert key == (pytest.approx(right, rel=1e-9) if isinstance(key, float) else right), name


def qti_key(item):
    """What gives points: options, pairs, or the value that is typed."""
    shown = {one.get("linkrefid") for one in item.iter("displayfeedback")}
    assert shown == {one.get("ident") for one in item.iter("itemfeedback")}
    texts = {one.get("ident"): text_of(one) for one in item.iter("response_label")}
    left = {one.get("ident"): text_of(one.find("material")) for one in item.iter("response_lid")
            if one.find("material") is not None}  # fmt: skip
    scored = [one for one in item.iter("respcondition") if one.find("setvar") is not None]
    if left:
        equal = [one.find(".//varequal") for one in scored]
        return {left[one.get("respident")]: texts[one.text] for one in equal}
    (condition,) = scored
    refused = [one for no in condition.iter("not") for one in no]
    equal = [one.text for one in condition.iter("varequal") if one not in refused]
    if item.find(".//response_str") is None:
        return {texts[one] for one in equal}
    low, high = condition.find(".//vargte"), condition.find(".//varlte")
    if low is None:
        return bare(equal[0])
    assert float(low.text) <= float(equal[0]) <= float(high.text)
    return float(equal[0])


def text_of(element):
    return bare("".join(element.itertext()))


def test_a_deck_has_a_card_for_every_question_with_its_key(found, keys, real_evidence, tmp_path):
    content, _ = made("anki", found, real_evidence)
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        (tmp_path / "cards").write_bytes(package.read("collection.anki2"))
        media = package.read("media").decode()
    with closing(sqlite3.connect(tmp_path / "cards")) as collection:
        notes = collection.execute("select guid, flds from notes").fetchall()
    cards = {one.split("\x1f")[0]: one.split("\x1f")[3] for _, one in notes}
    assert cards.keys() == {one.id for one in found}
    assert len({guid for guid, _ in notes}) == len(cards)
    for name, (kind, key) in ((one, keys[one]) for one in cards):
        if kind in ("choice", "several", "faulty_line"):
            said = re.findall(r"<b>Right:</b> (.*?)<br>", cards[name])
            assert {bare(one) for one in said} == key
    assert all(f'"{name}"' in media for one in found for name in one.pictures)


def test_an_item_without_a_key_or_of_one_page_alone_is_none(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run("tiny_memory.whole_budget", machine="desk", status="completed", error=None)
    evidence = Evidence(copy.load())
    found, left = questions(evidence, evidence.book.topics)
    assert "which-hold" in left["the runs leave open what is right"]
    assert "how-slow" in left["they make sense on their own page only"]
    assert {one.id for one in found}.isdisjoint({"which-hold", "how-slow"})


def test_a_picture_stands_alone_and_is_described(found):
    shown = [(one.stem, *pair) for one in found for pair in one.pictures.items()]
    assert shown
    for stem, name, content in shown:
        assert ET.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
        assert re.search(rf'<img src="{name}" alt="\w[^"]+"/>', stem)


def texts(question):
    parts = (part for one in question.replies for part in (one.text, one.beside, one.why))
    return [bare(one) for one in (question.stem, question.solution, *parts)]


def test_an_exported_question_names_no_claim_and_no_program(found, real_evidence):
    claims = [bare(one) for one in real_evidence.book.claims]
    for one in found:
        told = "".join(texts(one))
        assert not re.search(r"\w_(?:right|wrong)\b", told), one.id
        assert not any(f"claim{name}" in told for name in claims), one.id


def test_a_program_to_search_stands_with_what_it_printed(found, real_evidence):
    items = real_evidence.book.items
    searched = [one for one in found if one.id in items and items[one.id].kind == "faulty_line"]
    assert searched
    for one in searched:
        item, stem = items[one.id], texts(one)[0]
        name = item.wrong.path.rpartition("/")[2]
        assert name in text_of_program(real_evidence.book.root, item.wrong.path)
        assert name.removesuffix(".py") not in stem
        assert bare(item.lines[0].code.strip()) in stem
        for line in real_evidence.book.run(item.wrong.run).printed:
            assert bare(line) in stem


@pytest.mark.parametrize("word", ["wide model", "payload", "budget", "paced", "oversubscribed"])
def test_a_question_that_uses_a_word_of_the_book_explains_it_once(found, word):
    form = rf"\({word}\)" if word in ("paced", "oversubscribed") else rf"\b{word}\b"
    parts = [[one.stem, one.solution, *(f"{r.text} {r.why}" for r in one.replies)] for one in found]
    using = [str(one) for one in map("".join, parts) if re.search(form, re.sub(r"<b>.*", "", one))]
    assert using
    assert [one for one in using if one.count(f"<b>{word}</b>: ") != 1] == []


def test_the_cases_of_an_item_make_a_pool_from_which_one_is_asked(found, real_evidence):
    content, kept = made("gift", found, real_evidence)
    assert not re.search(rb"^=(?:%0%)?[\d.]+(?::[\d.]*)?e", content, re.MULTILINE)  # no exponents
    pools = {}
    for line in content.decode().splitlines():
        if line.startswith("$CATEGORY:"):
            own = pools.setdefault(line, [])
        elif line.startswith("::"):
            own.append(line.split("::")[1])
    base = {name: re.sub(r"-variant-\d+$", "", name) for name in (one.id for one in kept)}
    several = {one for name, one in base.items() if name != one}
    for category, names in pools.items():
        of = {base[name] for name in names}
        assert of <= several and len(of) == 1 if names[0] in several else not of & several, category
    packed = made("qti-1.2", found, real_evidence)[0]
    with zipfile.ZipFile(io.BytesIO(packed)) as package:
        roots = [ET.fromstring(package.read(f"{one}.xml")) for one in {one.topic for one in kept}]
    drawn = [one for root in roots for one in root.iterfind(".//{*}section/{*}section")]
    assert {base[item.get("ident")] for one in drawn for item in one.iterfind("{*}item")} == several
    assert all(one.findtext(".//{*}selection_number") == "1" for one in drawn)


def test_a_program_on_slides_keeps_its_lines_and_leaves_space_for_its_output(real_evidence):
    folio = Folio(real_evidence, real_evidence).in_link
    for topic in real_evidence.book.topics:
        program = listing.listing(topic.lessons["learn"].model.program, folio)
        parts = [one.splitlines() for one in on_slides(program)]
        lines = [line for part in parts for line in part if line]
        assert lines == [line for line in program.code.splitlines() if line]
        assert max(map(len, parts)) <= LINES
        assert len(parts[-1]) + len(program.output.printed.splitlines()) < LINES
        assert not any(part[0].startswith(" ") for part in parts)


def test_a_formula_goes_out_as_latex(evidence):
    text = "The [share](x.html) is $\\frac{n}{p}$, or `a & b`[^n].\n\n[^n]: *It*.\n"
    assert BareFolio(evidence, evidence).prose(text) == (
        "<p>The share is \\(\\frac{n}{p}\\), or <code>a &amp; b</code>[1].</p>\n"
        "<ol><li><p><em>It</em>.</p>\n</li></ol>"
    )


@pytest.mark.parametrize("name", formats.LACKS)
def test_the_same_book_gives_the_same_bytes(evidence, name):
    found, _ = questions(evidence, evidence.book.topics)
    content, _ = made(name, found, evidence)
    assert content == made(name, found, evidence)[0]
    if name != "gift":  # no file in it says when it was made
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            assert {one.date_time[0] for one in package.infolist()} == {1980}


def test_every_question_is_in_the_file_or_named_as_left_out(run, tmp_path, evidence):  # noqa: F811
    found, left = questions(evidence, evidence.book.topics)
    for name in formats.LACKS:
        code, out, _ = run("export", f"--{name}={tmp_path / name}")
        assert code == 0
        assert all(f"in no file, since {why}: {', '.join(ids)}" in out for why, ids in left.items())
        lines = [one for one in out.splitlines() if "left out" in one]
        num_left = sum(1 + one.rpartition(": ")[2].count(", ") for one in lines)
        assert int(re.search(r": (\d+) questions", out)[1]) + num_left == len(found)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("export",), "name at least one of --gift FILE"),
        (("export", "sharing", "--gift=new"), "no topic 'sharing'; did you mean 'sharding'?"),
        (("export", "--anki=there"), "there exists already"),
        (("export", "--gift=nowhere/new"), "nowhere/new: No such file or directory"),
        (("class", "sharing"), "no topic 'sharing'; did you mean 'sharding'?"),
        (("class", "sharding", "there"), "there exists already"),
    ],
)
def test_a_mistake_gets_a_line_and_nothing_is_written(run, arguments, says, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("mine")
    before = {*tmp_path.rglob("*")}
    code, _, error = run(*arguments)
    assert (code, error.count("\n")) == (2, 1)
    assert says in error
    assert {*tmp_path.rglob("*")} == before
    assert (tmp_path / "there").read_text() == "mine"


@pytest.mark.parametrize("name", ["ddp", "sharding", "communication-and-time"])
def test_what_students_get_of_a_class_holds_no_answer(real_evidence, name):
    (topic,) = (one for one in real_evidence.book.topics if one.id == name)
    parts = {part: text.decode() for part, text in lecture.documents(real_evidence, topic).items()}
    assert ("lab.html" in parts) == bool(
        [*(real_evidence.book.root / "content" / "topics" / name).glob("labs/*")]
    )
    for part in parts.keys() & {"slides.html", "questions.html", "lab.html"}:
        assert not re.search(r"data-verdict|pb-why|pb-answer", parts[part].partition("</style>")[2])
    assert parts["questions.html"].count('<div class="pb-question">') == 10
    assert parts["answers.html"].count('<div class="pb-question pb-keys">') >= 10
    assert not re.search(r"<(?:a|link|script|iframe)\b|\bsrc=", "".join(parts.values()))
    times = re.findall(r">(\d+)–(\d+)<", parts["plan.html"])
    assert [times[0][0], times[-1][1]] == ["0", "90"]
    assert all(end == start for (_, end), (start, _) in pairwise(times))
