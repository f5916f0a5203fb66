"""What decides each key, the sheets that show it to a blind reader, and the readings kept."""

import re

import pytest

from generator import __main__ as commands
from generator.checks import reading_checks
from generator.content.book import load
from generator.content.quiz import Order
from generator.content.readings import ClaimReadingsFile, Reading
from generator.evidence.evaluation import Evidence
from generator.items import blind_readings, blind_sheets, rules
from generator.items.keys import key_of
from generator.pages.rendering import render

QUIZ = "topics/averaging/quiz.yml"
READINGS = "topics/averaging/readings.yml"


def items_of(book):
    return {name: item for topic in book.topics for name, item in topic.items.items()}


def lettered(sheet):
    """What stands under each letter of a sheet, as a reader sees it."""
    found = (re.fullmatch(r"  ([A-Z])\. (.*)", line) for line in sheet.lines)
    return {one[1]: one[2] for one in found if one}


def answers(copy, text):
    file = copy.content.parent / "answers.yml"
    file.write_text("by: AB\nread_on: 2026-03-01\n" + text, encoding="utf-8")
    return file


def record(copy, text):
    book = copy.load()
    return blind_readings.record(Evidence(book), copy.content, answers(copy, text))


def letter_of(copy, item, text):
    """The letter under which a sheet shows an option."""
    book = copy.load()
    shown = lettered(blind_sheets.of_item(items_of(book)[item], Evidence(book)))
    return next(letter for letter, said in shown.items() if said == text)


def complete(copy):
    """Say that the readings of the topic are complete."""
    file = copy.content / READINGS
    text = file.read_text(encoding="utf-8") if file.exists() else "complete: false\n"
    file.write_text(text.replace("complete: false", "complete: true"), encoding="utf-8")


# ---- what decides a key -----------------------------------------------------------------------


def test_every_part_of_every_item_of_the_frozen_book_is_decided(book):
    for item in items_of(book).values():
        assert all(part.is_decided for part in rules.parts(item)), item.id


def test_an_option_that_nothing_decides_is_refused(copy):
    copy.edit(QUIZ, "        decides: averaging-is-equal\n", "")
    (error,) = copy.errors()
    assert "nothing says what decides this option" in error
    assert error.startswith(f"content/{QUIZ}:")


def test_a_claim_that_decides_must_exist(copy):
    copy.edit(QUIZ, "decides: averaging-is-equal", "decides: averaging-is-equals")
    assert any("no claim 'averaging-is-equals'" in error for error in copy.errors())


def test_a_graded_question_about_times_is_refused_unless_it_shows_them(copy):
    text = (copy.content / QUIZ).read_text(encoding="utf-8")
    table = text[
        text.index("    this_table:") : text.index("    options:\n      - text: The averaged")
    ]
    copy.edit(QUIZ, table, "")
    (error,) = copy.errors()
    assert "hangs on times (tiny_training.single.timing.step)" in error


def test_a_table_without_the_times_that_decide_is_refused(copy):
    copy.edit(
        QUIZ, "cells: [tiny_training.averaged.timing.step|median]", "cells: [machine.num_cores]"
    )
    (error,) = copy.errors()
    assert "hangs on tiny_training.averaged.timing.step, which this table does not show" in error


def test_a_table_with_a_cell_too_few_is_refused(copy):
    copy.edit(QUIZ, "columns: [Median]", "columns: [Median, Samples]")
    (error,) = copy.errors()
    assert "each row needs as many cells as there are columns" in error


def test_the_table_that_a_question_is_about_stands_on_its_page_and_on_its_sheet(book):
    evidence = Evidence(book)
    printed = evidence.plain("{{ tiny_training.averaged.timing.step|median }}")
    sheet = blind_sheets.of_item(items_of(book)["is-it-faster"], evidence)
    assert any(line.startswith(f"  | averaged | {printed}") for line in sheet.lines)
    page = render(book)["topics/averaging/trace.md"]
    row = re.search(r'<tr><th scope="row">averaged</th><td class="pb-number"[^>]*>(.*?)</td>', page)
    assert printed in row[1].replace("&nbsp;", " ").replace("\N{NO-BREAK SPACE}", " ")


def test_pieces_in_the_order_of_their_times_are_refused(copy):
    file = "topics/asking/quiz.yml"
    copy.edit(
        file,
        "by: tiny_memory.whole.ranks[0].memory.peak_bytes",
        "by: tiny_training.averaged.timing.step.median_seconds",
    )
    assert any("hangs on times (tiny_training.averaged.timing.step" in e for e in copy.errors())


# ---- sheets -----------------------------------------------------------------------------------


def test_a_sheet_shows_question_options_rules_and_numbers_and_nothing_that_tells_the_key(book):
    evidence = Evidence(book)
    for item in items_of(book).values():
        text = blind_sheets.written_out(blind_sheets.of_item(item, evidence))
        told = [part.why for part in getattr(item, "options", ()) if part.why]
        told += [*rules.claims_of(item), *([item.explains] if item.explains else [])]
        assert not [one for one in told if one in text], item.id
        decided_by = text.partition(blind_sheets.ASKED[item.kind])[2]  # an option may be a sentence
        said = [evidence.plain(book.claims[name].says) for name in rules.claims_of(item)]
        assert not [one for one in said if one in decided_by], item.id
        assert not re.search(r"holds$|does not hold|right_if|refuted", text, re.MULTILINE), item.id


def test_the_rule_of_a_sheet_has_both_sides_and_their_numbers(book):
    evidence = Evidence(book)
    sheet = blind_sheets.of_item(items_of(book)["is-it-faster"], evidence)
    text = "\n".join(sheet.lines)
    step = book.run("tiny_training.averaged").timing.step
    assert "observed slower predicted" in text
    assert f"first quartile {step.first_quartile_seconds} s" in text


def test_the_tolerance_of_a_rule_is_printed_as_the_share_that_it_is(book):
    sheet = blind_sheets.of_item(items_of(book)["is-it-equal"], Evidence(book))
    share = 128 * 2.0**-23  # epsilons of float32
    assert any(
        f"observed equals predicted, within {share:.3g} × predicted" in one for one in sheet.lines
    )


def test_letters_stand_for_the_options_as_written(book):
    evidence = Evidence(book)
    for item in items_of(book).values():
        if item.kind in ("choice", "several") and not any(one.slip for one in item.options):
            sheet = blind_sheets.of_item(item, evidence)
            said = list(lettered(sheet).values())
            assert said == [evidence.plain(item.options[place].text) for place in sheet.order]
            assert sheet.key == key_of(item, evidence).right


def test_an_order_is_never_shown_solved(book):
    evidence = Evidence(book)
    orders = [item for item in items_of(book).values() if isinstance(item, Order)]
    assert orders
    for item in orders:
        sheet = blind_sheets.of_item(item, evidence)
        assert sorted(sheet.order) == list(range(len(item.pieces)))
        assert sheet.order != tuple(range(len(item.pieces)))


def test_a_claim_has_its_sentence_and_its_rule_on_its_sheet(book):
    evidence = Evidence(book)
    written = blind_readings.claims_of_book(book)
    sheet = blind_sheets.of_claim(written["replicas-drift"], evidence)
    text = "\n".join(sheet.lines)
    assert evidence.plain(written["replicas-drift"].says) in text
    assert "tiny_training.drifting" in text


# ---- readings ---------------------------------------------------------------------------------


def test_a_reading_that_chose_the_key_is_kept_with_the_positions_as_written(copy):
    letter = letter_of(copy, "is-it-equal", "Yes")
    found = record(copy, f"items: {{is-it-equal: {letter}}}\n")
    assert found.num_agreeing == 1
    assert found.lines == found.refused == []
    kept = copy.load().item_readings["averaging"].items["is-it-equal"]
    assert (kept.by, kept.read_on, kept.choice) == ("AB", "2026-03-01", [1])


def test_a_reading_that_chose_otherwise_is_told_and_not_kept(copy):
    letter = letter_of(copy, "is-it-equal", "No")
    found = record(copy, f"items: {{is-it-equal: {{choice: {letter}, doubt: both lose}}}}\n")
    assert found.num_agreeing == 0
    (line,) = found.lines
    assert line.startswith(f"is-it-equal: chose {letter}, the key is ")
    assert line.endswith(": both lose")
    assert not (copy.content / READINGS).exists()


def test_a_doubt_is_kept_and_told(copy):
    letter = letter_of(copy, "is-it-equal", "Yes")
    found = record(copy, f"items: {{is-it-equal: {{choice: {letter}, doubt: one loss alone}}}}\n")
    assert (found.num_agreeing, found.num_doubted) == (1, 1)
    assert found.lines == ["is-it-equal: chose the key, with a doubt: one loss alone"]
    assert copy.load().item_readings["averaging"].items["is-it-equal"].doubt == "one loss alone"


@pytest.mark.parametrize("answer", ["Z", "[A, A]", "[]", "none"])
def test_an_answer_that_is_none_of_the_letters_is_refused(copy, answer):
    found = record(copy, f"items: {{is-it-equal: {answer}}}\n")
    assert found.num_agreeing == 0
    assert "is no answer; choose of AB" in found.refused[0]


def test_the_key_of_every_kind_is_recognised_and_another_answer_is_not(copy):
    """The key, put into letters by hand from what the sheet shows under them."""
    book = copy.load()
    evidence = Evidence(book)
    kinds = set()
    for item in items_of(book).values():
        sheet = blind_sheets.of_item(item, evidence)
        letters = dict(zip(sheet.order, "ABCDEFGH", strict=False))
        right = key_of(item, evidence).right or (0,)
        chosen = [letters[place] for place in right]
        found = record(copy, f"items: {{{item.id}: [{', '.join(chosen)}]}}\n")
        assert (found.num_agreeing, found.lines) == (1, []), item.id
        wrong = chosen[1:] + chosen[:1] if item.kind in ("order", "match") else []
        wrong = wrong or [letters[place] for place in range(len(letters)) if place not in right]
        if wrong:
            found = record(copy, f"items: {{{item.id}: [{', '.join(wrong)}]}}\n")
            assert found.num_agreeing == 0, item.id
            kinds.add(item.kind)
    assert kinds >= {"choice", "several", "order", "match", "number", "complete", "faulty_line"}


def test_a_claim_that_is_entailed_is_kept_and_one_that_is_not_is_told(copy):
    found = record(
        copy,
        'claims:\n  replicas-drift: "yes"\n'
        '  whole-fails: {entailed: "no", doubt: it says more}\n  no-such: "yes"\n',
    )
    assert found.lines == ["whole-fails: its rule does not entail its sentence: it says more"]
    assert found.refused[0].startswith("no claim 'no-such'")
    assert list(copy.load().claim_readings.claims) == ["replicas-drift"]


def test_another_reading_leaves_the_earlier_ones(copy):
    record(copy, f"items: {{is-it-equal: {letter_of(copy, 'is-it-equal', 'Yes')}}}\n")
    complete(copy)
    letter = letter_of(copy, "without-averaging", "They drift apart")
    record(copy, f"items: {{without-averaging: {letter}}}\n")
    file = copy.load().item_readings["averaging"]
    assert file.complete
    assert set(file.items) == {"is-it-equal", "without-averaging"}


# ---- which readings are asked for -------------------------------------------------------------


def test_no_reading_is_asked_for_until_a_topic_says_that_it_is_complete(copy):
    assert reading_checks.lacks(Evidence(copy.load())) == []
    complete(copy)
    book = copy.load()
    items = next(topic.items for topic in book.topics if topic.id == "averaging")
    lines = reading_checks.lacks(Evidence(book))
    assert len(lines) == len(items)
    assert all("nobody has read it blind" in line for line in lines)


def lacks_of(copy, item):
    complete(copy)
    return [line for line in reading_checks.lacks(Evidence(copy.load())) if f"item {item}:" in line]


@pytest.fixture
def read_copy(copy):
    """A copy in which one item was read."""
    record(copy, f"items: {{is-it-equal: {letter_of(copy, 'is-it-equal', 'Yes')}}}\n")
    assert lacks_of(copy, "is-it-equal") == []
    return copy


def test_a_changed_rule_asks_for_another_reading(read_copy):
    read_copy.edit("claims/tiny_training.yml", "{epsilons: 128, ", "{epsilons: 64, ")
    (line,) = lacks_of(read_copy, "is-it-equal")
    assert "its rule has changed since it was read on 2026-03-01" in line


def test_a_raised_revision_asks_for_another_reading(read_copy):
    read_copy.edit(QUIZ, "  - id: is-it-equal\n", "  - id: is-it-equal\n    revision: 2\n")
    assert len(lacks_of(read_copy, "is-it-equal")) == 1


def test_reworded_texts_and_another_run_ask_for_no_other_reading(read_copy):
    read_copy.edit(QUIZ, "Do averaged gradients learn", "Will averaged gradients learn")
    read_copy.edit(QUIZ, "why: The losses agree.", "why: The two losses agree.")
    assert lacks_of(read_copy, "is-it-equal") == []


def test_a_key_that_moved_asks_for_another_reading(read_copy):
    """The rule is as it was; the trace now says that the losses differ."""
    trace = read_copy.load().run("tiny_training.averaged")
    epochs = [epoch.model_dump(mode="json") for epoch in trace.epochs]
    epochs[-1]["loss"] *= 3
    read_copy.change_run("tiny_training.averaged", epochs=epochs)
    (line,) = lacks_of(read_copy, "is-it-equal")
    assert "its key is no longer what was chosen" in line


def test_a_reading_of_no_item_is_told(read_copy):
    read_copy.edit(READINGS, "  is-it-equal:", "  it-is-gone:")
    complete(read_copy)
    lines = reading_checks.lacks(Evidence(read_copy.load()))
    assert any(line.endswith("no item it-is-gone any more; delete its reading") for line in lines)


def test_a_claim_asks_for_another_reading_when_its_sentence_changes(copy):
    record(copy, 'claims: {replicas-drift: "yes"}\n')
    assert "replicas-drift" not in reading_checks.unread_claims(Evidence(copy.load()))
    copy.edit("readings.yml", "complete: false", "complete: true")
    says = copy.load().claims["replicas-drift"].says
    copy.edit("claims/tiny_training.yml", says, f"On that machine, {says}")
    lines = reading_checks.lacks(Evidence(copy.load()))
    assert any("claim replicas-drift: its rule or sentence has changed" in line for line in lines)


def test_no_reading_is_asked_for_on_another_machine(copy):
    complete(copy)
    copy.add_machine("desk", "tiny_training")
    assert reading_checks.lacks(Evidence(copy.load())) == []


def test_progress_counts_what_nobody_has_read(read_copy):
    copied = read_copy.content / READINGS
    copied.write_text(copied.read_text().replace("complete: true", "complete: false"))
    lines = reading_checks.progress(Evidence(read_copy.load()))
    num = len(next(one.items for one in read_copy.load().topics if one.id == "averaging"))
    assert f"averaging: {num - 1} of {num} items are not read blind yet" in lines


def test_a_readings_file_of_another_form_is_refused_at_its_line(copy):
    (copy.content / READINGS).write_text("items:\n  is-it-equal: {rule: 12}\n", encoding="utf-8")
    assert any(error.startswith(f"content/{READINGS}:2:") for error in copy.errors())


# ---- the command ------------------------------------------------------------------------------


@pytest.fixture
def blind(copy, capsys, monkeypatch):
    """Call the command over a copy of the frozen book, whose traces count as fresh."""
    monkeypatch.setattr(commands, "load", lambda *asked: load(*asked, is_stale=lambda _: False))

    def call(*arguments):
        code = commands.main(["blind", *arguments, "--content", str(copy.content)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def sheets(text):
    return re.findall(r"^=== (\S+) ", text, re.MULTILINE)


def test_batches_hold_each_item_of_the_book_once(blind, copy):
    found = [name for part in "123" for name in sheets(blind("--batch", f"{part}/3")[1])]
    assert sorted(found) == sorted(items_of(copy.load()))
    assert len(sheets(blind("--claims")[1])) == len(blind_readings.claims_of_book(copy.load()))


def test_an_item_that_was_read_is_missing_no_more(blind, copy):
    letter = letter_of(copy, "is-it-equal", "Yes")
    code, said, _ = blind("--record", str(answers(copy, f"items: {{is-it-equal: {letter}}}\n")))
    assert (code, said) == (0, "1 answers agree and are kept, 0 with a doubt\n")
    missing = sheets(blind("--missing")[1])
    assert set(items_of(copy.load())) - set(missing) == {"is-it-equal"}


def test_what_cannot_be_asked_or_recorded_ends_with_two_and_one_line(blind, copy):
    code, _, said = blind("is-it-equel")
    assert (code, said) == (2, "no item 'is-it-equel'; did you mean 'is-it-equal'?\n")
    code, _, said = blind("--record", str(answers(copy, "itmes: {}\n")))
    assert code == 2
    assert "unknown key 'itmes'" in said
    code, _, said = blind("--record", str(copy.content / "nowhere.yml"))
    assert code == 2
    assert "nowhere.yml" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("digest", ["441525916e57", "061989608291", "061d9608291b"])
def test_a_digest_that_looks_like_a_number_is_read_as_text(copy, digest):
    path = copy.content / "readings.yml"
    reading = Reading(rule=digest, by="AB", read_on="2026-03-01")
    blind_readings._dump(path, ClaimReadingsFile(claims={"replicas-drift": reading}))
    assert copy.load().claim_readings.claims["replicas-drift"].rule == digest
