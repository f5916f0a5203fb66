"""Reading content: every mistake at its place, all at once; and which machine a book shows."""

import json
import re
import shutil

import pytest

import proofbook.generator.pages.press  # noqa: F401 the kinds of items are what makes files of questions whole
from proofbook.generator.checks.claim_checks import broken_laws
from proofbook.generator.content import keys
from proofbook.generator.content.documents import read
from proofbook.generator.content.errors import ContentError, ContentErrors
from proofbook.generator.content.reading import documents, file_models, load
from proofbook.generator.values.evaluation import Evidence
from tests.generator import scenes
from tests.generator.conftest import FROZEN, fresh, render
from tests.generator.scenes import readers_tried
from tests.recorded import sealed, write
from tests.whole_pages import machines_behind

QUIZ = "topics/averaging/quiz.yml"


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


# --- keys that an author misspells or leaves out


def _swapped(key):
    middle = len(key) // 2
    return key[: middle - 1] + key[middle] + key[middle - 1] + key[middle + 1 :]


WAYS = (
    _swapped,
    str.upper,
    "{}s".format,
    lambda key: key.replace("_", "-") if "_" in key else key.capitalize(),
)


def _told(source, text, model):
    try:
        read(source, text, model)
    except ContentErrors as errors:
        return str(errors).splitlines()
    return []


def _keys():
    """Each key of each part that the frozen book writes, once: its file, its place, its model."""
    known = set()
    for document in documents(FROZEN)[0]:
        model, source = type(document.model), document.source
        for path, place in source.places.items() if model in file_models().values() else ():
            holding = keys.models_at(model, path[:-1])
            part = next(
                (one for one in holding if path[-1:] and path[-1] in keys.properties(one)), None
            )
            if part and (part, path[-1]) not in known:
                known.add((part, path[-1]))
                yield source, path[-1], place.key.start_mark.index, part, model


def test_a_misspelt_key_is_told_with_the_one_that_was_meant_in_every_part():
    for number, (source, key, begin, part, model) in enumerate(_keys()):
        way = WAYS[number % len(WAYS)]
        wrong = key.upper() if way(key) in keys.properties(part) else way(key)
        text = source.text[:begin] + wrong + source.text[begin + len(key) :]
        said = f"unknown key {wrong!r}; did you mean {key!r}?"
        assert any(said in line for line in _told(source.file, text, model)), (source.file, said)
    assert number > 300


ITEM = "items:\n  - {id: one, "
ORDER = f"{ITEM}kind: order, stem: In which order?}}\n"
PIECES = "{text: A, why: B}, {text: A, wyh: B, by: a.b}, {text: A, why: B, by: a.b}"
OPTIONS = "[{text: A, why: B, rihgt: true}, {}]"
WHY = "'why' (the reason, shown with the answer)"
QUIZ = "topics/*/quiz*.yml"


@pytest.mark.parametrize(
    ("pattern", "text", "told"),
    [
        (QUIZ, ORDER,
         ["2:5: missing key 'pieces' (several, at least 3, at most 6, each with 'text', 'why', "
          "'by' or 'recorded')"]),
        (QUIZ, f"{ITEM}kind: order, pieces: [{PIECES}]}}\n",
         ["2:5: missing key 'stem' (the question)", "2:37: missing key 'by' or 'recorded'",
          "2:66: unknown key 'wyh'; did you mean 'why'?"]),
        (QUIZ, f"{ITEM}stem: Why?, options: {OPTIONS}}}\n",
         ["2:55: unknown key 'rihgt'; did you mean 'right'?",
          f"2:69: missing keys {WHY}, 'text' or 'gives', 'right_if' or 'refuted_by' or 'decides' "
          "or 'right' or 'misconception' or 'gives'"]),
        (QUIZ, f"{ITEM}stem: Why?, Kind: number, answer: '1'}}\n",
         [f"2:5: missing key {WHY}", "2:27: unknown key 'Kind'; did you mean 'kind'?"]),
        (QUIZ, f"{ITEM}stem: Why?, kind: oder}}\n",
         ["2:33: no kind 'oder'; did you mean 'order'?"]),
        ("claims/*.yml", "claims: [{id: one, sasy: Two.}]\n",
         ["1:10: missing keys 'predicted' (an expression over settings, a formula, or another "
          "run), 'observed' (an expression over what a run measured)",
          "1:20: unknown key 'sasy'; did you mean 'says'?"]),
        ("topics/*/recall.yml",
         "title: A\nintroduction: B\nfigures: [{id: b, kind: play, runs: []}]\n",
         ["1:1: missing key 'afterword' (below it)",
          "3:11: missing keys 'title' (its heading), 'caption' (what to see in it), "
          "'runs' or 'growth' or 'bars'"]),
    ],
)  # fmt: skip
def test_all_that_a_part_lacks_is_told_at_once_with_what_it_is(pattern, text, told):
    lines = [line.partition(":")[2] for line in _told("q.yml", text, file_models()[pattern])]
    assert lines == told


@pytest.mark.parametrize("load", [0.04, 0.4])
def test_pages_say_that_a_machine_was_busy_while_it_measured(copy, load):
    with copy.rewritten("tiny_memory") as trace:
        trace["quiet"] = {"load_before_share": 0.0, "load_after_share": load, "canaries": {}}
    pages = render(copy.load())
    said = {path for path, page in pages.items() if "Other processes used its cores" in page}
    used = {path for path, page in pages.items() if "traces/reference-frozen/tiny_memory" in page}
    timed = {path for path in used if re.search(r"\d\s(ms|s)</a>", pages[path])}
    assert said == (timed - {"evidence/tiny_memory.md"} if load > 0.05 else set())


def test_a_law_that_fails_names_the_run_with_another_setting_than_the_references(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    run = copy.recorded("tiny_memory.whole", "desk")
    ranks, settings = run["ranks"], run["settings"]
    ranks[0]["memory"]["peak_bytes"] *= 3
    key = next(iter(settings))
    changed = {**settings, key: settings[key] + 1}
    copy.change_run("tiny_memory.whole", "desk", ranks=ranks, settings=changed)
    book = copy.load()
    failed = [str(one) for one in broken_laws(book, Evidence(book).judged_claims)]
    said = f"; tiny_memory.whole has {key} {changed[key]}, the reference machine {settings[key]}"
    assert failed
    assert all(line.endswith(said) for line in failed if "tiny_memory.whole." in line)


def test_a_stale_trace_of_this_machine_stands_in_for_none(copy):
    """Then the message's remedy, `run`, measures it: it is no longer fresh."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.trace("tiny_memory").unlink()
    book = copy.strict(lambda trace: trace.experiment == "tiny_memory")
    assert "tiny_memory" not in book.traces


def test_links_know_the_digest_of_a_question_whichever_machine_it_comes_from(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run("tiny_memory.whole_budget", machine="desk", status="completed", error=None)
    pages = render(copy.load())
    marks = re.search(r'data-page="sharding/deep" data-items="([^"]*)"', pages["topics/index.md"])
    pairs = (one.lstrip("!").split(":") for one in marks[1].split())
    known = {name: digests for name, *digests in pairs}
    asks = pages["topics/sharding/deep-what-a-split-saves.md"]
    asked = dict(re.findall(r'data-item="([^"]+)" data-digest="([^"]+)"', asks))
    assert asked
    assert all(digest.startswith(tuple(known[name])) for name, digest in asked.items())


def test_a_run_of_this_machine_is_lent_by_no_other_and_shown_on_the_reference_machines_pages(copy):
    for name in ("attic", "desk"):
        copy.add_machine(name, "tiny_memory")
    copy.remove_run("tiny_memory.halves_budget")
    copy.remove_run("tiny_memory.halves", "desk")
    evidence = Evidence(copy.load())
    for one in (evidence, evidence.reference):
        assert one.printable("tiny_memory.halves_budget.seed").machines == {"desk"}
    assert evidence.printable("tiny_memory.halves.seed").machines == {"reference-frozen"}


def test_each_run_that_a_machine_lacks_is_lent_by_the_first_that_has_it(copy):
    for name in ("desk", "attic"):
        copy.add_machine(name, "tiny_memory", "tiny_training")
    for run in ("halves", "halves_budget"):
        copy.remove_run(f"tiny_memory.{run}", "desk")
    copy.remove_run("tiny_memory.halves_budget")
    evidence = Evidence(copy.load("desk"))
    lenders = {"halves": "reference-frozen", "halves_budget": "attic"}
    for run, machine in lenders.items():
        assert evidence.printable(f"tiny_memory.{run}.seed").machines == {machine}


def test_a_verdict_over_two_machines_is_given_by_the_one_that_has_all_runs(copy):
    copy.add_machine("desk", "tiny_memory")
    copy.append(
        "claims/tiny_memory.yml",
        "  - id: over-both\n    kind: observation\n    says: The peak is the other model.\n"
        "    predicted: tiny_training.single.model.bytes\n    relation: equals\n"
        "    observed: tiny_memory.whole.ranks[0].memory.peak_bytes\n",
    )
    outcome = Evidence(copy.load()).judged("over-both")
    assert outcome.machine == "reference-frozen"
    assert outcome.predicted.machines == outcome.observed.machines == {"reference-frozen"}


@pytest.mark.parametrize(
    ("changed", "topic"),
    [
        ({}, None),
        ({"timing": {"wall_seconds": 1.0}}, "averaging"),  # too few steps for a time of a step
        ({"epochs": []}, "averaging"),
    ],
)
def test_a_topic_shows_the_reference_machine_where_this_one_lacks_a_value_of_it(
    copy, changed, topic
):
    """A run that ended as declared and has no such value: no row is left without its number."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run(scenes.AVERAGED, "desk", **changed)
    pages = render(copy.load())
    lessons = {path: text for path, text in pages.items() if path.startswith("topics/")}
    for path, text in lessons.items():
        if topic and path.startswith(f"topics/{topic}/"):
            assert "desk" not in machines_behind(text, text), path
    assert any("desk" in machines_behind(text, text) for text in lessons.values())
    assert not any("not measured here" in text for text in lessons.values())


def test_a_try_of_a_run_that_this_machine_skipped_shows_the_number_of_the_try(copy):
    scenes.readers_tried(copy)
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run(scenes.AVERAGED, "desk", **scenes.SKIPPED)
    pages = render(load(copy.content, None, fresh, with_tries=True))
    assert '<span class="pb-label">0.600</span>' in pages["topics/averaging/try.md"]
