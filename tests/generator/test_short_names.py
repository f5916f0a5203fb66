"""`with:` gives a run a short name, in a lesson file or in one section of it."""

import pytest

from generator.pages.rendering import render

LEARN, COST = "topics/averaging/learn.yml", "topics/averaging/cost.yml"
SAID = "output_says: The averaged run ended with a loss of {{ tiny_training.averaged.epochs"
HEAD = "title: Two that agree\n"


def named(copy, short="mean: tiny_training.averaged"):
    copy.edit(LEARN, HEAD, f"{HEAD}with: {{{short}}}\n")


def test_a_page_with_short_names_is_the_same_page(copy):
    copy.edit(COST, "what is missing.", "missing on {{ tiny_memory.halves.world_size }} ranks.")
    before = render(copy.load())
    named(copy, "both: tiny_training.averaged")
    copy.edit(LEARN, SAID, SAID.replace("tiny_training.averaged", "both"))
    copy.edit(LEARN, "ranks, {{ tiny_training.averaged.", "ranks, {{ both.")
    copy.edit(
        COST, "  - title: Memory\n", "  - title: Memory\n    with: {part: tiny_memory.halves}\n"
    )
    copy.edit(COST, "missing on {{ tiny_memory.halves.", "missing on {{ part.")
    assert copy.errors() == []
    assert render(copy.load()) == before


@pytest.mark.parametrize(
    ("short", "at", "said"),
    [
        ("both: tiny_training.gone", "tiny_training.gone", "tiny_training has no run 'gone'"),
        ("tiny_memory: tiny_training.averaged", "tiny_training.averaged}",
         "'tiny_memory' is an experiment; choose another name"),
        ("run: tiny_training.averaged", "tiny_training.averaged}", "'run' means something"),
    ],
)  # fmt: skip
def test_a_name_that_cannot_be_is_told_where_it_is_given(copy, short, at, said):
    named(copy, short)
    before = (copy.content / LEARN).read_text().partition(at)[0].split("\n")
    place = f"content/{LEARN}:{len(before)}:{len(before[-1]) + 1}: "
    errors = copy.errors()
    assert any(error.startswith(place) and said in error for error in errors), (place, errors)


def test_a_mistake_behind_a_short_name_is_told_at_its_own_column(copy):
    named(copy, "both: tiny_training.averaged")
    text = (
        "output_says: Over {{ both.world_size }} ranks, {{ bath.world_size }} and {{ both.gone }}."
    )
    copy.edit(LEARN, SAID, f"{text}\ntakeaway_of: {{{{ tiny_training.averaged.epochs")
    content = copy.content / LEARN
    lines = content.read_text().split("\n")
    content.write_text("\n".join(line for line in lines if not line.startswith("takeaway_of")))
    line = next(i for i, one in enumerate(content.read_text().split("\n"), 1) if one == text)
    unknown, lost = copy.errors()
    assert unknown.startswith(f"content/{LEARN}:{line}:{text.index('bath') + 1}: ")
    assert "unknown name 'bath'" in unknown
    assert lost.startswith(f"content/{LEARN}:{line}:{text.index('both.gone') + 1}: ")
    assert "tiny_training.averaged has no field 'gone'" in lost
