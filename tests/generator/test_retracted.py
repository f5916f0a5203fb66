"""Retracted sentences: who says them, how they stand, and the program that repeats it."""

import json

import pytest

from generator.checks import repeats
from generator.pages import rendering

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
    text = (copy.content / "retracted.yml").read_text()
    (copy.content / "retracted.yml").write_text(
        text.replace("    claim: ", f"    program: {name}\n    claim: ", 1)
    )


def sections(copy):
    text = rendering.render(copy.load())["retracted.md"]
    return [one.split("</section>")[0] for one in text.split("<section")[1:]]


def test_a_program_stands_with_its_text_its_output_and_the_command_that_repeats_it(repeated):
    section = sections(repeated)[0]
    assert "<details" in section
    assert "<code>torchrun --nproc-per-node 2 content/retracted/shown.py</code>" in section
    assert "what &lt;it&gt; showed" in section.split("pb-printed")[1]
    assert "evidence/repeats.html#run-repeats-shown" in section
    assert 'id="run-repeats-shown"' in rendering.render(repeated.load())["evidence/repeats.md"]


def test_a_program_that_serves_two_sentences_stands_once(repeated):
    text = (repeated.content / "retracted.yml").read_text()
    first = next(iter(repeated.load().retractions))
    at = text.index("    claim: ", text.index("    claim: ") + 1)
    (repeated.content / "retracted.yml").write_text(f"{text[:at]}    program: shown\n{text[at:]}")
    found = sections(repeated)
    assert [section.count("<pre") for section in found[:2]] == [2, 0]
    assert f'href="#{first}"' in found[1]
    assert "torchrun" in found[1]


def test_a_program_of_twenty_lines_passes_however_many_are_blank(repeated):
    file = repeated.content / "retracted" / "shown.py"
    file.write_text(PROGRAM + "\n".join(["print(1)", ""] * 18))
    assert repeated.errors() == []
    file.write_text(file.read_text() + "\nprint(2)\n")
    (error,) = repeated.errors()
    assert "content/retracted/shown.py has 21 lines" in error
    assert error.startswith("content/retracted.yml:")


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


def test_a_run_of_another_program_does_not_count(repeated):
    repeated.change_run("repeats.shown", settings={"program": "content/retracted/other.py"})
    (error,) = repeated.errors()
    assert "executed content/retracted/other.py, not this file" in error


def test_an_edit_of_a_program_shows_while_serving(repeated):
    from generator.pages.press import Press

    press = Press()
    before = press.printed(repeated.load())["retracted.md"]
    (repeated.content / "retracted" / "shown.py").write_text(PROGRAM.replace("print", "print  "))
    assert press.printed(repeated.load())["retracted.md"] != before


def test_a_sentence_names_who_says_it_by_a_reference_or_in_words(copy):
    text = (copy.content / "retracted.yml").read_text()
    where = next(line for line in text.splitlines() if line.strip().startswith("where:"))
    reference = next(iter(copy.load().references))
    copy.edit("retracted.yml", where, f"    source: {reference}")
    url = copy.load().references[reference].url
    assert url in sections(copy)[0]
    copy.edit("retracted.yml", f"    source: {reference}\n", "")
    (error,) = copy.errors()
    assert "source: (a reference) or where: (in words)" in error


def test_a_sentence_without_a_program_is_told(repeated):
    first, *others = repeated.load().retractions
    found = repeats.lacks(repeated.load())
    assert [line.split()[1] for line in found] == others
    assert first not in " ".join(found)


def test_every_sentence_has_a_link_to_itself(copy):
    for name, section in zip(copy.load().retractions, sections(copy), strict=True):
        assert f'href="#{name}"' in section
