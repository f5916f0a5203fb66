"""A press prints a page again exactly when it would come out otherwise."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from generator.content.errors import ContentErrors
from generator.evidence.folio import interface_words
from generator.pages import page as printing
from generator.pages.press import Press
from generator.website import publish

EVERY_KIND_OF_FILE = [
    "site.yml", "statements.yml", "misconceptions.yml", "references.yml", "claims/tiny_memory.yml",
    "claims/tiny_training.yml", "topics/sharding/topic.yml", "topics/sharding/quiz.yml",
    "topics/sharding/experiment.yml", "topics/sharding/deep.yml", "topics/averaging/topic.yml",
    "topics/averaging/quiz.yml", "topics/averaging/learn.yml", "topics/averaging/why.yml",
    "topics/averaging/trace.yml", "topics/averaging/try.yml", "topics/averaging/cost.yml",
    "topics/averaging/recall.yml", "topics/averaging/worked.yml", "guide.yml",
    "planner/plan.yml",
    "topics/asking/topic.yml", "topics/asking/quiz.yml", "topics/asking/challenge.yml",
    "topics/asking/recall.yml", "glossary.yml",
]  # fmt: skip

MOST_TEXTS = 5  # of one file, spread over it


def outcome(press, copy):
    """The pages, or what is wrong; either way all that an author sees."""
    try:
        return press.printed(copy.load())
    except ContentErrors as errors:
        return str(errors)


@pytest.fixture
def counted(monkeypatch):
    """The paths of the pages that were really printed."""
    paths = []

    def count(sheet, judged):
        paths.append(sheet.path)
        return printing.printed(sheet, judged)

    monkeypatch.setattr("generator.pages.hands.printed", count)
    return paths


def test_the_list_holds_every_file_of_the_frozen_book(copy):
    found = {path.relative_to(copy.content).as_posix() for path in copy.content.rglob("*.yml")}
    found -= {"glossary.yml"}  # it stands in the search's index, and on no page
    assert {name for name in found if "quiz-" not in name} == set(EVERY_KIND_OF_FILE)


def texts_of(copy, file):
    """One text of each kind of field of a file: where it stands, by names without positions."""
    document = next(one for one in copy.load().documents if one.source.file == f"content/{file}")
    found = {}
    for one in document.fields:
        if one.mark in ("line", "prose") or one.name == "says":
            found.setdefault(tuple(part for part in one.path if isinstance(part, str)), one.path)
    return list(found.values())[:: max(1, len(found) // MOST_TEXTS)]


@pytest.mark.parametrize("file", EVERY_KIND_OF_FILE)
def test_an_edit_of_any_field_prints_what_a_fresh_press_prints(copy, file):
    press = Press()
    before = outcome(press, copy)
    assert isinstance(before, dict)
    path, changed = copy.content / file, 0
    original = path.read_text()
    for place in texts_of(copy, file):
        written = holder = yaml.safe_load(original.replace("e-5", "0e-5"))
        for part in place[:-1]:
            holder = holder[part]
        holder[place[-1]] = f"{holder[place[-1]]} Besides, so it is."
        path.write_text(yaml.safe_dump(written, allow_unicode=True, sort_keys=False))
        after = outcome(press, copy)
        assert after == outcome(Press(), copy), place
        changed += after != before
    path.write_text(original)
    assert outcome(press, copy) == before
    assert changed or file == "misconceptions.yml"  # whose words stand on no page


def test_no_page_is_printed_again_when_nothing_changed(copy, counted):
    press = Press()
    first = press.printed(copy.load())
    assert sorted(counted) == sorted(first)
    counted.clear()
    assert press.printed(copy.load()) == first
    assert counted == []


def test_an_edit_of_a_lesson_prints_that_page_alone(copy, counted):
    press = Press()
    before = press.printed(copy.load())
    counted.clear()
    copy.edit("topics/averaging/trace.yml", "From the rows to the update.", "From rows to update.")
    after = press.printed(copy.load())
    assert counted == ["topics/averaging/trace.md"]
    assert {path for path in after if after[path] != before[path]} == set(counted)


@pytest.mark.parametrize(
    ("edit", "pages"),
    [
        (lambda copy: copy.edit("statements.yml", "said: ", "said: So "), {"retracted.md"}),
        (lambda copy: copy.edit("site.yml", "title: A tiny", "title: A very tiny"), {"index.md"}),
    ],
)
def test_an_edit_prints_the_pages_that_draw_upon_it(copy, counted, edit, pages):
    press = Press()
    press.printed(copy.load())
    counted.clear()
    edit(copy)
    press.printed(copy.load())
    assert set(counted) == pages


def test_an_edit_of_an_item_prints_its_topic_and_what_leads_there(copy, counted):
    press = Press()
    press.printed(copy.load())
    counted.clear()
    copy.edit("topics/sharding/quiz.yml", "It asked for", "It had asked for")
    press.printed(copy.load())
    assert "topics/sharding/experiment.md" in counted
    others = {path for path in counted if path.startswith(("topics/averaging", "topics/asking"))}
    assert others == {"topics/averaging/recall.md", "topics/asking/recall.md"}  # they lead on


def test_a_changed_trace_prints_everything_again(copy, counted):
    press = Press()
    before = press.printed(copy.load())
    copy.change_run("tiny_training.averaged", seed=12)
    counted.clear()
    after = press.printed(copy.load())
    assert set(counted) == set(after)
    assert after == Press().printed(copy.load())
    copy.change_run("tiny_memory.whole_budget", budget_bytes=121_000)
    assert press.printed(copy.load())["index.md"] != before["index.md"]


def test_a_trace_that_turns_stale_is_told_though_no_file_of_the_book_changed(copy):
    press = Press()
    press.printed(copy.load())
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    press.printed(copy.load())
    stale = press.printed(copy.load(is_stale=lambda _: True))
    assert stale == Press().printed(copy.load(is_stale=lambda _: True))
    assert stale != press.printed(copy.load())


def test_listed_code_is_read_again(copy, counted):
    press = Press()
    before = press.printed(copy.load())
    counted.clear()
    copy.edit("topics/sharding/code/halve.py", "num_bytes // 2", "num_bytes >> 1")
    after = press.printed(copy.load())
    assert "topics/sharding/experiment.md" in counted
    assert not any(path.startswith("topics/averaging") for path in counted)
    assert after["topics/sharding/experiment.md"] != before["topics/sharding/experiment.md"]
    assert after == Press().printed(copy.load())


def test_code_that_an_item_asks_about_is_read_again(copy):
    press = Press()
    press.printed(copy.load())
    copy.edit("topics/asking/code/mean_right.py", "if world_size > 1:", "if 1 < world_size:")
    assert outcome(press, copy) == outcome(Press(), copy)


def test_an_edit_of_a_template_prints_everything_again(copy, counted, monkeypatch, tmp_path):
    templates = tmp_path / "templates"
    shutil.copytree(printing.TEMPLATES, templates)
    monkeypatch.setattr("generator.pages.press.TEMPLATES", templates)
    press = Press()
    press.printed(copy.load())
    counted.clear()
    macros = templates / "macros" / "items.j2"
    macros.write_text(macros.read_text() + "\n")
    assert set(press.printed(copy.load())) == set(counted)


def test_words_of_the_interface_are_read_again(copy, monkeypatch):
    press = Press()
    before = press.printed(copy.load())
    words = json.loads(json.dumps(interface_words()))
    words["topics"]["title"] = "Every topic"
    monkeypatch.setattr("generator.pages.press.interface_words", lambda: words)
    monkeypatch.setattr("generator.evidence.folio.interface_words", lambda: words)
    after = press.printed(copy.load())
    assert b"Every topic" in after["topics/index.md"]
    assert b"Every topic" not in before["topics/index.md"]
    monkeypatch.undo()
    assert press.printed(copy.load()) == before


def test_a_page_and_a_topic_that_are_gone_are_printed_no_more(copy):
    press = Press()
    press.printed(copy.load())
    copy.edit("topics/averaging/topic.yml", "  learn: What keeps two copies equal?\n", "")
    (copy.content / "topics" / "averaging" / "learn.yml").unlink()
    after = press.printed(copy.load())
    assert "topics/averaging/learn.md" not in after
    assert after == Press().printed(copy.load())


def test_a_mistake_is_told_as_long_as_it_stands_and_at_its_place_of_now(copy):
    press = Press()
    press.printed(copy.load())
    file = "topics/averaging/quiz.yml"
    copy.edit(file, "text: They stay equal", "text: They stay 2 equal")
    first = outcome(press, copy)
    assert "'2'" in first
    assert outcome(press, copy) == first
    copy.edit(file, "items:\n", "# a line more\nitems:\n")
    later = outcome(press, copy)
    assert later == outcome(Press(), copy)
    assert re.sub(r":\d+:", "::", later) == re.sub(r":\d+:", "::", first) != later
    copy.edit(file, "text: They stay 2 equal", "text: They stay equal")
    assert isinstance(outcome(press, copy), dict)


def test_what_is_on_disk_is_read_only_where_somebody_touched_it(copy, tmp_path, monkeypatch):
    press, seen, out = Press(), {}, tmp_path / "pages"
    publish.publish(copy.load(), copy.content, out, press, seen)
    (out / "evidence.md").touch()
    (out / "retracted.md").unlink()
    copy.edit("site.yml", "title: A tiny", "title: A very tiny")
    read = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), read_bytes(path))[1])
    change, _ = publish.publish(copy.load(), copy.content, out, press, seen)
    monkeypatch.undo()
    assert change.num_written == 2  # the page that was deleted, and the one that says otherwise
    inside = {path.relative_to(out).as_posix() for path in read if path.is_relative_to(out)}
    assert inside <= {"evidence.md", "index.md"}
    fresh = tmp_path / "fresh"
    publish.publish(copy.load(), copy.content, fresh)
    assert files(out) == files(fresh)


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
