"""Retracted sentences: who says them, how they stand, and the program that repeats it."""

import json
import re
from dataclasses import replace
from typing import get_args

import pytest

from generator.checks.statement_checks import bears_out
from generator.content.claim import SentenceVerdict
from generator.pages import rendering
from generator.pages.press import Press
from generator.website import publish

PROGRAM = '"""torchrun --nproc-per-node 2 shown.py"""\n\nprint("what <it> showed")\n'


@pytest.fixture
def repeated(copy):
    """The frozen book, whose first sentence has a program that a run executed."""
    document = json.loads(copy.trace("tiny_training").read_text())
    run = next(iter(document["runs"].values()))
    run |= {
        "settings": {"program": "content/retracted/shown.py"},
        "printed": ["what <it> showed"],
        "world_size": 2,
    }
    document |= {"experiment": "repeats", "runs": {"shown": run}}
    copy.trace("repeats").write_text(json.dumps(document))
    folder = copy.content / "retracted"
    folder.mkdir()
    (folder / "shown.py").write_text(PROGRAM)
    name_program(copy, "shown")
    return copy


def name_program(copy, name):
    text = (copy.content / "statements.yml").read_text()
    (copy.content / "statements.yml").write_text(
        text.replace("    claim: ", f"    program: {name}\n    uses: one layer\n    claim: ", 1)
    )


def sections(copy):
    text = rendering.render(copy.load())["retracted.md"]
    return [one.split("</section>")[0] for one in text.split("<section")[1:]]


def test_a_program_is_published_whole_and_its_link_downloads_it(repeated):
    files = publish.site_files(repeated.load(), repeated.content, Press())
    assert files["programs/shown.py"].decode() == PROGRAM
    assert 'href="programs/shown.py" download' in files["retracted.md"].decode()


def test_a_program_stands_with_its_text_its_output_and_the_command_that_repeats_it(repeated):
    section = sections(repeated)[0]
    assert "<details" in section
    assert "does not repeat the measurement; it uses one layer." in section
    outside, _, inside = re.sub(r"<[^>]+>", "", section).partition("The evidence")
    assert "torchrun --nproc-per-node 2 shown.py" in outside
    assert "torchrun --nproc-per-node 2 content/retracted/shown.py" in inside
    assert "what &lt;it&gt; showed" in section.split("pb-printed")[1]
    assert "evidence/repeats.html#run-repeats-shown" in section
    assert 'id="run-repeats-shown"' in rendering.render(repeated.load())["evidence/repeats.md"]


def name_in_second(copy, fields):
    """Give fields to the second sentence; returns the line of its claim, which follows them."""
    text = (copy.content / "statements.yml").read_text()
    at = text.index("    claim: ", text.index("    claim: ") + 1)
    (copy.content / "statements.yml").write_text(f"{text[:at]}{fields}{text[at:]}")
    return f"{text[:at]}{fields}".count("\n") + 1


def test_a_program_that_serves_two_sentences_stands_once(repeated):
    first = next(iter(repeated.load().retractions))
    name_in_second(repeated, "    program: shown\n")
    found = sections(repeated)
    assert [section.count("<pre") for section in found[:2]] == [2, 0]
    assert f'href="#{first}"' in found[1]
    assert "torchrun" in found[1]


def test_a_program_that_is_not_there_is_refused_with_the_nearest_name(repeated):
    (repeated.content / "retracted" / "shown.py").rename(
        repeated.content / "retracted" / "shows.py"
    )
    (error,) = repeated.errors()
    assert "no file content/retracted/shown.py" in error
    assert "shows" in error


def test_a_program_that_no_run_executed_is_refused_with_the_command_that_does(repeated):
    repeated.trace("repeats").unlink()
    (error,) = repeated.errors()
    assert "no run repeats.shown executed it" in error
    assert "python -m runners run repeats --full" in error


@pytest.mark.parametrize(
    ("written", "instead", "shown"),
    [("false", "true", "refuted"), ("true", "false", "confirmed"),
     ("true", "too_general", "confirmed")],
)  # fmt: skip
def test_a_verdict_that_the_claim_does_not_bear_out_is_refused(copy, written, instead, shown):
    copy.edit("statements.yml", f'verdict: "{written}"', f'verdict: "{instead}"')
    (error,) = copy.errors()
    assert error.startswith("content/statements.yml:")
    assert f"{instead} needs a claim" in error
    assert error.endswith(f"it is {shown}")


def test_a_sentence_that_its_claim_leaves_open_gets_no_verdict(book, evidence):
    sentence = next(iter(book.retractions.values()))
    outcome = evidence.outcome(sentence.claim)
    for verdict in get_args(SentenceVerdict):
        for undecided in ("no_evidence", "too_few_samples", "does_not_apply"):
            one = sentence.model_copy(update={"verdict": verdict})
            assert not bears_out(one, replace(outcome, verdict=undecided))
