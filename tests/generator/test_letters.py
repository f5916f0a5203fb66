"""Letters of formulas: which the check takes as defined, and where pages say their meaning."""

import re

import pytest

from proofbook.generator.checks.content_checks import check
from proofbook.generator.values.evaluation import Evidence
from tests.generator.conftest import render

LEARN, TOPIC, DEEP, QUIZ = (
    *(f"topics/averaging/{name}.yml" for name in ("learn", "topic")),
    "topics/sharding/deep.yml",
    "topics/averaging/quiz.yml",
)
IDEA = "idea: After each backward pass, every rank takes the mean of all gradients."
PLACE = re.compile(r"topics/averaging/learn.yml:(\d+):(\d+): letter (\S+) has no meaning")


def _told(copy, text):
    copy.edit(LEARN, IDEA, "idea: |\n  " + text)
    return PLACE.findall("\n".join(map(str, check(Evidence(copy.load())))))


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("Each of $n$ ranks has $m / n$ parts.", "n m n"),
        ("Each of *$n$* ranks has $m / n$ parts of *$m$*.", ""),
        (r"A sum over $\sum_{i \in r} g_i$ parts.", "r g"),
        (r"It takes $t = 2 a$, so $t$ grows.", "a"),
        (r"The outputs $f(x)$ and $e^{x}$, with a length of $\text{layer}$.", "x x"),
        (r"A rate of $\alpha$, $\log b$ in all.", r"\alpha b"),
        (r"Set *$\mathcal{K}$*: $\mathcal{K}$ of $K$.", "K"),
        ("A shell writes `$n$`.", ""),
    ],
)
def test_a_letter_has_a_meaning_if_its_page_or_its_formula_defines_it(copy, text, letters):
    assert [name for *_, name in _told(copy, text)] == letters.split()


def test_a_letter_without_a_meaning_is_told_at_its_column(copy):
    told = _told(copy, r"It is $\frac{1}{q}$ of *$n$* ranks.")
    line = (
        (copy.content / LEARN)
        .read_text()
        .split("\n")
        .index(r"  It is $\frac{1}{q}$ of *$n$* ranks.")
    )
    assert told == [(str(line + 1), str(len(r"  It is $\frac{1}{q")), "q")]


def test_the_table_of_a_topic_defines_letters_of_all_its_files_and_of_no_other_topic(copy):
    copy.edit(TOPIC, "key_laws:", "letters: {q: parts of a rank}\nkey_laws:")
    assert _told(copy, "It has $q$ parts, $z$ in all.")[0][2] == "z"
    copy.edit(DEEP, "text: The largest layer decides.", "text: The largest of $q$ layers decides.")
    (told,) = [one for one in map(str, check(Evidence(copy.load()))) if "letter q" in one]
    assert DEEP in told


def test_a_question_does_not_define_letters_of_the_next(copy):
    copy.edit(QUIZ, "stem: Do", "stem: Of *$q$* parts, do")
    copy.edit(QUIZ, "stem: Which run", "stem: Of $q$ parts, which run")
    (told,) = [one for one in map(str, check(Evidence(copy.load()))) if "letter q" in one]
    assert QUIZ in told


def test_a_page_says_below_it_what_its_own_letters_stand_for(copy):
    copy.edit(TOPIC, "key_laws:", "letters: {b: bytes of a model, z: parts}\nkey_laws:")
    pages = render(copy.load())
    (below,) = re.findall(
        '<p class="pb-aside pb-letters".*?</p>', pages["topics/averaging/worked.md"]
    )
    assert "<mi>b</mi>" in below
    assert "bytes of a model" in below
    assert "parts" not in below
    assert "pb-letters" not in pages["topics/averaging/learn.md"]


def test_the_cheat_sheet_says_what_the_letters_of_its_laws_stand_for(copy):
    copy.edit(TOPIC, "key_laws:", "letters: {b: bytes of a model, z: parts}\nkey_laws:")
    copy.edit("claims/tiny_memory.yml", "`2 · model bytes`", "`2 · b`")
    (told,) = re.findall('pb-letters".*?</p>', render(copy.load())["cheat-sheet.md"])
    assert "bytes of a model" in told
    assert "parts" not in told
