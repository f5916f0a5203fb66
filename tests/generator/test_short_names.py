"""`with:` gives a run a short name, in a lesson file or in one section of it."""

from tests.generator.rendering import render

LEARN, COST = "topics/averaging/learn.yml", "topics/averaging/cost.yml"
SAID = "output_says: The averaged run ended with a loss of {{ tiny_training.averaged.epochs"
HEAD = "title: Two that agree\n"


def test_a_page_with_short_names_is_the_same_page(copy):
    copy.edit(COST, "what is missing.", "missing on {{ tiny_memory.halves.world_size }} ranks.")
    before = render(copy.load())
    copy.edit(LEARN, HEAD, f"{HEAD}with: {{both: tiny_training.averaged}}\n")
    copy.edit(LEARN, SAID, SAID.replace("tiny_training.averaged", "both"))
    copy.edit(LEARN, "ranks, {{ tiny_training.averaged.", "ranks, {{ both.")
    copy.edit(
        COST, "  - title: Memory\n", "  - title: Memory\n    with: {part: tiny_memory.halves}\n"
    )
    copy.edit(COST, "missing on {{ tiny_memory.halves.", "missing on {{ part.")
    assert copy.errors() == []
    assert render(copy.load()) == before
