"""Retracted sentences: the verdicts that they may have, and the programs that repeat them."""

from dataclasses import replace
from typing import get_args

import pytest

from generator.checks.claim_checks import bears_out
from generator.content.claim import SentenceVerdict
from generator.pages.press import Press
from generator.website import publish
from tests.generator.scenes import a_program_repeats_two_statements


def test_a_program_is_published_whole_where_its_link_leads(copy):
    a_program_repeats_two_statements(copy)
    files = publish.site_files(copy.load(), copy.content, Press())
    program = (copy.content / "retracted" / "shown.py").read_bytes()
    assert files["programs/shown.py"] == program
    assert 'href="programs/shown.py" download' in files["retracted.md"].decode()


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("traces/reference-frozen/repeats.json", "no trace of 'repeats' on any machine"),
        ("retracted/shown.py", "no file 'content/retracted/shown.py'"),
    ],
)
def test_a_program_without_its_run_or_its_file_is_refused(copy, lost, said):
    a_program_repeats_two_statements(copy)
    (copy.content / lost).unlink()
    assert said in copy.errors()[0]


def test_a_sentence_that_its_claim_leaves_open_gets_no_verdict(book, evidence):
    for sentence in book.statements.values():
        outcome = evidence.judged(sentence.claim)
        for verdict in get_args(SentenceVerdict):
            one = sentence.model_copy(update={"verdict": verdict})
            for undecided in ("no_evidence", "does_not_apply"):
                assert not bears_out(one, replace(outcome, verdict=undecided))
