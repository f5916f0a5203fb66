"""Keys that an author misspells or leaves out: what was meant, and all that is missing, at once."""

from types import SimpleNamespace

import pytest

import proofbook.generator.pages.press  # noqa: F401 the kinds of items are what makes files of questions whole
from proofbook.generator.checks import content_checks
from proofbook.generator.content import keys
from proofbook.generator.content.documents import read
from proofbook.generator.content.errors import ContentErrors
from proofbook.generator.content.lab import WrongFile
from proofbook.generator.content.quiz import QuizFile
from proofbook.generator.content.reading import FILES, documents
from tests.generator.conftest import FROZEN


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
        for path, place in source.places.items() if model in FILES.values() else ():
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
EDGES = "[{title: A, symptoms: [{id: a, title: B, tell: C, edges: [{ask: B}]}]}]"
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
          "'runs' or 'growth'"]),
        ("topics/*/labs/*/lab.yml", "title: A\nrequirements: {}\n",
         ["1:1: missing keys 'order' (its place among all labs), 'task' (at most 150 words), "
          "'hints' (given one at a time)", "2:15: requirements: must have at least 1 item, not 0"]),
        ("guide.yml", f"title: A\nabout: B\nintroduction: C\ngroups: {EDGES}\n",
         ["1:1: missing keys 'otherwise' (what to collect, and where to ask, if no question of a "
          "symptom leads on), 'techniques_say', 'techniques' (several, at least 1, each with 'id', "
          "'name', 'costs')",
          "4:67: missing keys 'because' (why a *yes* leads there), 'claims' (what backs it), "
          "'lesson' (a part with 'page', 'section'), 'use' or 'edges' or 'continue_at'"]),
    ],
)  # fmt: skip
def test_all_that_a_part_lacks_is_told_at_once_with_what_it_is(pattern, text, told):
    lines = [line.partition(":")[2] for line in _told("q.yml", text, FILES[pattern])]
    assert lines == told


def test_a_part_takes_any_of_several_keys_and_says_so_where_it_has_none():
    pieces = ", ".join("{text: A, why: B, by: a.b}" for _ in range(3))
    text = ORDER.replace("?}", f"?, pieces: [{pieces}]}}")
    assert read("q.yml", text, QuizFile).model.items[0].pieces[2].by == "a.b"


def test_the_changes_of_a_wrong_program_must_fit_the_solution_and_make_python(tmp_path):
    (tmp_path / "solved.py").write_text('"""Right."""\none = 1\ntwo = 2\n')
    changes = ["-three = 3", "-one = 1\n      +one = 3)", "-one = 1", "-one = 1\n      *two"]
    text = "programs:\n" + "".join(
        f"  p{number}:\n    mistake: A.\n    fails: same\n    changes: |\n      {one}\n"
        for number, one in enumerate(changes)
    )
    (tmp_path / "wrong.yml").write_text(text)
    evidence = SimpleNamespace(book=SimpleNamespace(root=tmp_path))
    errors = content_checks._wrong_programs(evidence.book, read("wrong.yml", text, WrongFile))
    assert [str(error) for error in errors] == [
        "wrong.yml:6:7: 'three = 3' is no line of the program; copy it from there, as it is "
        "indented",
        "wrong.yml:11:7: with these changes it is no Python: unmatched ')': 'one = 3)'",
        "wrong.yml:23:7: mark lines with @ or -, and behind them those to add with +",
    ]
