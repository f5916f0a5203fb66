"""Reading content: every mistake at its place, all at once; and which machine a book shows."""

import json
import re
import shutil

import pytest

from proofbook.generator.content.errors import ContentError, ContentErrors
from proofbook.generator.content.reading import load
from tests.generator.conftest import fresh
from tests.generator.scenes import readers_tried
from tests.recorded import sealed, write

QUIZ = "topics/averaging/quiz.yml"


def test_mistakes_of_all_files_come_together_sorted_by_place(copy):
    copy.edit(QUIZ, "        why: The losses agree.\n", "")
    copy.edit("site.yml", "called: parts", "caled: parts")
    copy.edit("topics/sharding/topic.yml", "order: 1", "order: first")
    copy.edit("topics/sharding/experiment.yml", "cut in two.", "cut in 2.")
    files = [error.split(":")[0] for error in copy.errors()]
    assert files == [
        "content/site.yml",
        f"content/{QUIZ}",
        "content/topics/sharding/experiment.yml",
        "content/topics/sharding/topic.yml",
    ]


def test_a_mode_without_its_file_and_a_file_without_its_mode_are_refused(copy):
    copy.edit("topics/sharding/topic.yml", "  experiment:", "  trace: What?\n  experiment:")
    copy.edit("topics/averaging/topic.yml", "  trace: What happens to one batch?", "  deep: Why?")
    errors = copy.errors()
    assert any("'trace' stands under modes:, but not in the folder" in e for e in errors)
    assert any("'trace' stands not under modes:, but in the folder" in e for e in errors)


def test_a_mode_whose_file_cannot_be_read_is_told_once(copy):
    copy.edit("topics/averaging/learn.yml", "title: ", "title: [")
    (error,) = copy.errors()
    assert "not YAML" in error


def test_a_machine_that_is_not_there_is_an_error_that_names_those_there_are(copy):
    with pytest.raises(ContentErrors, match=r"traces/shed: no such machine; .*: reference-frozen"):
        copy.load("shed")
    shutil.rmtree(copy.content / "traces")
    (error,) = copy.errors()
    assert error.startswith("content/traces: no such machine")
    assert error.endswith("there is none yet")


def test_an_experiment_that_nobody_ran_names_its_command(copy, tmp_path, monkeypatch):
    monkeypatch.setenv("PROOFBOOK_EXPERIMENTS", str(tmp_path / "experiments"))
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "tiny_memory.py").write_text("")
    copy.trace("tiny_memory").unlink()
    of_claims = [error for error in copy.errors() if "no trace of 'tiny_memory'" in error]
    assert all("`python -m runners run tiny_memory`" in error for error in of_claims)
    assert {error.partition(":")[0] for error in of_claims} > {"content/site.yml"}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[:500], "not a whole JSON file"),
        (lambda text: text.replace('"schema_version": 2', '"schema_version": 3'), "schema_version"),
        (lambda text: sealed(text.replace("reference-frozen", "other", 1)), "is 'other', the fol"),
        (lambda text: sealed(text.replace('"tiny_memory"', '"ddp"', 1)), "is 'ddp', the file"),
        (lambda text: text.replace("-01-02T03", "-02-30T03", 1), "03:04:05Z' is no time such as"),
        (lambda text: text.replace("3.11.9", "3", 1), "python: '3' is no version such as"),
        (lambda text: text.replace('"status": "completed",', "", 1), "status: field required"),
        (lambda text: text.replace('"seed"', '"sead": 1, "seed"', 1), "sead: extra inputs"),
        (lambda text: text.replace("0.0021", "1e999", 1), "samples.0: input should be a finite"),
    ],
)
def test_a_bad_trace_is_named_with_its_field(copy, spoil, said):
    path = copy.trace("tiny_memory")
    path.write_text(spoil(path.read_text()))
    (error,) = copy.errors()
    assert re.match(r"content/traces/reference-frozen/tiny_memory\.json(:\d+)?: ", error)
    assert said in error


def test_a_published_book_names_each_trace_that_its_reference_machine_lacks(copy):
    """Though another committed machine could stand in; what is new on this machine may wait."""
    programs = copy.content.parent / "runners" / "experiments"
    programs.mkdir(parents=True)
    for name in ("labs", "tiny_memory", "tiny_training", "_template"):
        (programs / f"{name}.py").write_text("")
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    graded = json.loads(copy.trace("tiny_memory", "desk").read_text()) | {"experiment": "labs"}
    write(copy.trace("labs", "desk"), graded)
    reference = copy.content / "traces" / "reference-frozen"
    (reference / "tiny_memory.json").unlink()

    def lacks(*machines, **how):
        with pytest.raises(ContentErrors) as refused:
            load(copy.content, reference.name, is_stale=fresh, only=machines, **how)
        line = r"reference-frozen/(\w+)\.json: no such file.*`python -m runners run"
        return [name for one in refused.value.errors for name in re.findall(line, str(one))]

    assert lacks(reference.name, "desk") == ["labs", "tiny_memory"]
    assert load(copy.content, reference.name, is_stale=fresh, only=[reference.name], with_new=True)
    (reference / "machine.json").unlink()
    assert lacks(reference.name, "desk") == ["machine"]
    assert copy.load("desk")


def test_a_folder_that_was_renamed_does_not_pass_for_another_machine(copy):
    traces = copy.content / "traces"
    (traces / "reference-frozen").rename(traces / "reference-other")
    said = "machine.json: name: is 'reference-frozen', the folder says 'reference-other'"
    assert f"content/traces/reference-other/{said}" in copy.errors()


def test_the_machine_is_the_asked_one_then_the_noted_one_then_the_reference(copy, monkeypatch):
    assert copy.load().machine.name == "reference-frozen"
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    assert copy.load().machine.name == "desk"
    monkeypatch.setenv("PROOFBOOK_MACHINE", "reference-frozen")
    assert copy.load().machine.name == "reference-frozen"
    assert copy.load("desk").machine.name == "desk"


def test_an_experiment_that_this_machine_lacks_is_taken_whole_from_the_reference(copy):
    copy.add_machine("desk", "tiny_memory")
    book = copy.load()
    own, borrowed = book.traces["tiny_memory"], book.traces["tiny_training"]
    assert (own.machine.name, borrowed.machine.name) == ("desk", "reference-frozen")
    assert copy.errors() == []


def test_questions_set_apart_in_another_file_belong_to_the_topic_and_keep_ids_unique(copy):
    folder = copy.content / "topics" / "sharding"
    text = (folder / "quiz.yml").read_text()
    (folder / "quiz-more.yml").write_text(text.replace("who-fits", "who-fits-again"))
    assert set(copy.load().topics[0].items) == {"who-fits", "who-fits-again"}
    (folder / "quiz-more.yml").write_text(text)
    (error,) = copy.errors()
    said = "duplicate item id 'who-fits'; content/topics/sharding/quiz.yml:2:9 has it already"
    assert error == f"content/topics/sharding/quiz-more.yml:2:9: {said}"


def test_what_several_places_of_a_file_have_from_one_cause_is_one_line():
    cause = "no trace of 'a'; run `it`"
    found = [ContentError("a.yml", line, 2, f"a.b{line}: {cause}") for line in (9, 3, 4)]
    others = [ContentError("b.yml", 1, 1, cause), ContentError("b.yml", 2, 1, cause)]
    told = str(ContentErrors([*found, *others])).splitlines()
    assert told == [f"a.yml:3:2: a.b3: {cause} (also at 4:2, 9:2)", *map(str, others)]


def test_a_build_reads_no_try(copy):
    readers_tried(copy)
    assert copy.load().tries == ()
