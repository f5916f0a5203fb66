"""What readers exported: statistics against closed forms, and files that nobody should trust."""

import json
import math
import random

import pytest

from generator import __main__ as commands
from generator.__main__ import main
from generator.content.book import load
from generator.evidence.evaluation import Evidence
from generator.items.digests import digest_of
from generator.items.item_statistics import MIN_READERS, fits, report
from generator.items.readers import MAX_BYTES, Attempt, Export, ExportError, read
from generator.pages import reader_report

NAMES = ("is-it-equal", "is-it-faster", "without-averaging", "what-is-sent")


@pytest.fixture
def items(book):
    return {name: item for topic in book.topics for name, item in topic.items.items()}


@pytest.fixture
def digests(items, evidence):
    return {name: digest_of(item, evidence) for name, item in items.items()}


def attempt(answer, is_right, *, at=1, confidence=None, gave_up=False):
    return {
        "at": at, "answer": answer, "is_right": is_right, "confidence": confidence,
        "gave_up": gave_up, "nth": 1,
    }  # fmt: skip


def exported(digests, attempts, at=0):
    """One reader's file, by what was answered to each item."""
    items = {
        name: {
            "digest": digests[name], "step": 0, "due": 5,
            "attempts": [{**one, "at": at + place} for place, one in enumerate(tried)],
        }
        for name, tried in attempts.items()
    }  # fmt: skip
    return {"proofbook": 1, "exported_at": "2026-01-02T03:04:05Z", "items": items}


def parsed(document):
    return Export.model_validate(document)


def told(items, digests, documents):
    return report(items, digests, [parsed(one) for one in documents])


def found(items, digests, documents, name):
    (one,) = [row for row in told(items, digests, documents).items if row.item.id == name]
    return one


def crowd(digests, num, seed=7):
    """Readers of different ability, each right or wrong on each of four items; and who was."""
    chance = random.Random(seed)
    scores = []
    for _ in range(num):
        ability = chance.random()
        scores.append([int(chance.random() < ability) for _ in NAMES])
    documents = [
        exported(digests, {n: [attempt(0, bool(s))] for n, s in zip(NAMES, row, strict=True)}, at=i)
        for i, row in enumerate(scores)
    ]
    return scores, documents


def point_biserial(right, rest):
    """(M₁ − M₀) / s · √(p q), with the deviation over all readers."""
    ones = [value for is_right, value in zip(right, rest, strict=True) if is_right]
    zeros = [value for is_right, value in zip(right, rest, strict=True) if not is_right]
    mean = sum(rest) / len(rest)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in rest) / len(rest))
    share = len(ones) / len(rest)
    between = sum(ones) / len(ones) - sum(zeros) / len(zeros)
    return between / deviation * math.sqrt(share * (1 - share))


def test_difficulty_is_the_share_right_at_the_first_attempt(items, digests):
    scores, documents = crowd(digests, 25)
    for place, name in enumerate(NAMES):
        one = found(items, digests, documents, name)
        assert one.num_readers == 25
        assert one.right == (sum(row[place] for row in scores), 25)


def test_discrimination_is_the_point_biserial_of_an_item_and_the_rest(items, digests):
    scores, documents = crowd(digests, 40)
    for place, name in enumerate(NAMES):
        right = [row[place] for row in scores]
        rest = [sum(row) - row[place] for row in scores]
        one = found(items, digests, documents, name)
        assert one.discrimination == pytest.approx(point_biserial(right, rest))


def test_few_readers_and_equal_ones_say_nothing_of_discrimination(items, digests):
    _, documents = crowd(digests, MIN_READERS - 1)
    assert found(items, digests, documents, NAMES[0]).why_unknown == "too few readers"
    same = [
        exported(digests, {name: [attempt(0, True)] for name in NAMES}, at=at)
        for at in range(MIN_READERS)
    ]
    assert found(items, digests, same, NAMES[0]).why_unknown == "all alike"


def test_a_later_attempt_is_no_knowledge_but_a_choice(items, digests):
    tries = [attempt(1, False), attempt(2, False), attempt(0, True)]
    one = found(items, digests, [exported(digests, {"is-it-faster": tries})], "is-it-faster")
    assert one.right == (0, 1)
    assert one.never_chosen == ()


def test_options_that_nobody_chose_are_named(items, digests):
    documents = [
        exported(digests, {"is-it-faster": [attempt(0, True)], "which-hold": [attempt([0], False)]})
    ]
    assert found(items, digests, documents, "is-it-faster").never_chosen == (1, 2)
    assert found(items, digests, documents, "which-hold").never_chosen == (1, 2)


def test_giving_up_is_not_knowing(items, digests):
    document = exported(digests, {"is-it-equal": [attempt(None, False, gave_up=True)]})
    one = found(items, digests, [document], "is-it-equal")
    assert one.right == (0, 1)
    assert one.never_chosen == (0, 1)


def test_answers_to_older_versions_are_counted_apart(items, digests):
    older = exported(
        {**digests, "is-it-equal": "0ld"[:1] + "a"}, {"is-it-equal": [attempt(1, True)]}
    )
    now = exported(digests, {"is-it-equal": [attempt(1, False)]}, at=9)
    one = found(items, digests, [older, now], "is-it-equal")
    assert (one.num_readers, one.right, one.older) == (1, (0, 1), (1, 1))
    assert one.never_chosen == (0,)


def test_items_that_nobody_answered_are_named(items, digests):
    document = exported(digests, {"is-it-equal": [attempt(0, True)]})
    never = told(items, digests, [document]).never_answered
    assert set(never) == set(items) - {"is-it-equal"}


def test_sureness_is_compared_with_being_right(items, digests):
    documents = [
        exported(digests, {"is-it-equal": [attempt(0, is_right, confidence=level)]}, at=at)
        for at, (level, is_right) in enumerate(
            [(2, True), (2, False), (2, True), (0, False), (0, True), (1, True)]
        )
    ]
    assert told(items, digests, documents).by_confidence == {0: (1, 2), 1: (1, 1), 2: (2, 3)}
    assert found(items, digests, documents, "is-it-equal").by_confidence[2] == (2, 3)


def test_a_prediction_is_not_graded_beside_others(items, digests):
    document = exported(
        digests,
        {"say-the-loss": [attempt(1.5, True, confidence=2)], "is-it-equal": [attempt(0, True)]},
    )
    assert told(items, digests, [document]).by_confidence == {}
    assert found(items, digests, [document], "say-the-loss").right == (1, 1)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("is-it-faster", [0, 2], [3, -1, 1.5, "0", [0], 10**9]),
        ("which-hold", [[0], [2, 0, 1]], [0, [3], [], "x"]),
        ("who-needs-most", [[2, 1, 0], [0, 1, 2]], [[0, 1], [0, 1, 1], [0, 1, 3], 0]),
        ("what-belongs", [[0, 0, 2]], [[0, 1], [0, 1, 3], "x"]),
        ("where-is-the-fault", [0], [7, [0]]),
        ("what-peak", [1.5, 164000, "160 KiB"], [[1]]),
        ("how-slow", [0.002], [[1]]),
    ],
)
def test_an_answer_fits_the_kind_of_its_item_or_is_left_out(items, digests, name, good, bad):
    for answer in good:
        assert fits(items[name], Attempt(at=1, answer=answer))
    for answer in bad:
        one = Attempt.model_construct(at=1, answer=answer, gave_up=False)
        assert not fits(items[name], one), answer
    unfit = [one for one in bad if not isinstance(one, list) or all(0 <= i < 99 for i in one)][:1]
    document = exported(digests, {name: [attempt(answer, True) for answer in unfit]})
    if unfit and unfit[0] != -1:
        assert told(items, digests, [document]).num_unfit == 1
        assert told(items, digests, [document]).items == ()


def test_two_files_of_one_reader_count_once_and_the_fuller_one_stays(digests):
    early = parsed(exported(digests, {"is-it-equal": [attempt(0, True)]}, at=123))
    late = parsed(
        exported(digests, {"is-it-equal": [attempt(0, True)], "is-it-faster": [attempt(1, False)]},
                 at=123)
    )  # fmt: skip
    other = parsed(exported(digests, {"is-it-equal": [attempt(0, True)]}, at=124))
    assert reader_report.one_each([early, other, late]) == [late, other]


def of_one(attempts, digest="aa", name="a"):
    """The text of a file with one record, its attempts as JSON."""
    record = f'{{"digest": {json.dumps(digest)}, "attempts": {attempts}}}'
    return f'{{"proofbook": 1, "items": {{{json.dumps(name)}: {record}}}}}'


HOSTILE = {
    "empty": "",
    "torn": '{"proofbook": 1, "items": {',
    "not json": "\x00\x01",
    "a list": "[]",
    "foreign": '{"version": 3}',
    "newer": '{"proofbook": 2, "items": {}}',
    "a word for the version": '{"proofbook": "1", "items": {}}',
    "no items": '{"proofbook": 1}',
    "items as a list": '{"proofbook": 1, "items": []}',
    "a record without attempts": of_one("[]"),
    "deep": "[" * 100_000,
    "nan": of_one('[{"at": NaN, "answer": 0}]'),
    "an endless number": of_one('[{"at": 1e999, "answer": 0}]'),
    "a true answer": of_one('[{"at": 1, "answer": true}]'),
    "a long answer": of_one(f'[{{"at": 1, "answer": "{"x" * 101}"}}]'),
    "a right word": of_one('[{"at": 1, "answer": 0, "is_right": "yes"}]'),
    "sureness beyond sure": of_one('[{"at": 1, "answer": 0, "confidence": 3}]'),
    "an escape": of_one("0", name="\x1b[2Jclear"),
    "markup": of_one('[{"at": 1, "answer": 0}]', digest="<script>"),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_is_no_export_is_refused_in_one_clear_line(tmp_path, text):
    path = tmp_path / "answers.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ExportError) as refused:
        read(path)
    said = str(refused.value)
    assert said.startswith(f"{path}: ")
    assert len(said.removeprefix(str(path))) < 200
    assert said.isprintable()


def test_a_file_that_is_too_large_missing_or_not_text_is_refused(tmp_path):
    for name, content in (("large.json", b" " * (MAX_BYTES + 1)), ("latin.json", b'{"\xff": 1}')):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ExportError, match=name):
            read(tmp_path / name)
    for name in ("gone.json", "."):
        with pytest.raises(ExportError):
            read(tmp_path / name)


def test_the_command_reports_on_good_files_and_names_each_bad_one(
    copy, capsys, monkeypatch, tmp_path, digests
):
    monkeypatch.setattr(commands, "load", lambda *asked: load(*asked, is_stale=lambda _: False))
    _, documents = crowd(digests, 12)
    documents[0]["items"]["not-of-this-book"] = documents[0]["items"]["is-it-equal"]
    paths = []
    for number, document in enumerate(documents):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(document))
    (tmp_path / "bad.json").write_text("{")
    call = ["items", "--content", str(copy.content), *map(str, paths)]
    assert main(call) == 0
    said = capsys.readouterr().out
    assert "12 readers in 12 files" in said
    assert "nobody chose: They cannot be told apart" in said
    assert "1 record of items that this book does not have" in said
    assert "never answered: " in said
    assert main([*call, str(tmp_path / "bad.json"), str(tmp_path / "gone.json")]) == 2
    again = capsys.readouterr()
    assert again.out == said
    assert len(again.err.splitlines()) == 2
    assert "bad.json: not a whole JSON file" in again.err


def test_no_readable_file_at_all_prints_nothing_but_what_is_wrong(
    copy, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(commands, "load", lambda *asked: load(*asked, is_stale=lambda _: False))
    assert main(["items", str(tmp_path / "gone.json"), "--content", str(copy.content)]) == 2
    assert capsys.readouterr().out == ""


def test_every_word_that_is_printed_is_the_books_own(evidence, digests, tmp_path):
    evil = "\x1b[31m<script>"
    document = exported(digests, {"is-it-equal": [attempt(0, True)]})
    document["items"][evil] = document["items"]["is-it-equal"]
    document["exported_at"] = evil
    (tmp_path / "a.json").write_text(json.dumps(document))
    told = reader_report.tell(Evidence(evidence.book), [tmp_path / "a.json"])
    assert all(line.isprintable() for line in told.lines)
    assert "script" not in "".join(told.lines + told.refused)
