"""Lessons checked against their items, runs and code: each mistake of a mode at its place."""

import pytest

from tests.generator.explained_program import PROGRAM

LEARN, WHY, TRY, COST = (f"topics/averaging/{name}.yml" for name in ("learn", "why", "try", "cost"))
CHALLENGE, DEEP = "topics/asking/challenge.yml", "topics/sharding/deep.yml"


@pytest.mark.parametrize(
    ("file", "old", "new", "at", "said"),
    [
        (LEARN, "code: total = sum(gradients)", "code: total = sum(gradient)",
         "total = sum(gradient)",
         "does not stand in the listing; did you mean 'total = sum(gradients)'?"),
        (LEARN, "path: content/topics/averaging/code/mean.py",
         "path: content/topics/averaging/code/means.py", "content/topics/averaging/code/means.py",
         "no file 'content/topics/averaging/code/means.py' in the project"),
        (LEARN, "checks: [is-it-equal, is-it-faster", "checks: [is-it-equal, is-it-equal",
         "is-it-equal, what-is-sent", "'is-it-equal' stands above already"),
        (LEARN, "guess: without-averaging", "guess: say-the-bytes", "say-the-bytes",
         "item 'say-the-bytes' is of kind number; here it must be choice or predict"),
        (TRY, "item: say-the-bytes", "item: is-it-equal", "is-it-equal",
         "item 'is-it-equal' is of kind choice; here it must be predict or number"),
        (TRY, "value: tiny_training.averaged.epochs", "value: tiny_training.single.epochs",
         "tiny_training.single.epochs", "it starts tiny_training.averaged."),
        (TRY, "set: {learning_rate: 0.2}", "set: {learning_rates: 0.2}", "0.2}",
         "has no setting 'learning_rates'; did you mean 'learning_rate'?"),
        (TRY, "set: {world_size: 4}", "set: {world_size: many}", "many}",
         "world_size is 2 in tiny_training.averaged; give another int"),
        (CHALLENGE, "item: which-hold", "item: how-many-bytes", "how-many-bytes\n    worked: Two",
         "'how-many-bytes' stands above already"),
        (COST, "law: whole-peak", "law: replicas-drift", "replicas-drift",
         "replicas-drift compares no numbers: predicted is tiny_training.drifting"),
        (COST, "    figure: peaks\n", "", "title: With the model",
         "each section of growth shows a figure of kind growth"),
        (COST, "measured: run.ranks[0].memory.peak_bytes",
         "measured: run.ranks[0].memory.peek_bytes", "run.ranks[0].memory.peek_bytes",
         "for tiny_memory.whole: "),
        (COST, "measured: run.ranks[0].memory.peak_bytes", "measured: 2 * run.model.bytes",
         "2 * run.model.bytes", "is nothing that a run measured"),
        (COST, "measured: run.ranks[0].memory.peak_bytes", "measured: rank(0)", "rank(0)",
         "gives words and no value"),
        (COST, "x: run.ranks[0].num_parameters", "x: run.strategy", "run.strategy",
         "for tiny_memory.whole: tiny_memory.whole.strategy is text, not a number"),
        (COST, "x: run.ranks[0].num_parameters\n",
         "x: run.ranks[0].num_parameters - run.ranks[0].num_parameters\n      logarithmic: true\n",
         "run.ranks[0].num_parameters -", "no place on a logarithmic axis"),
        (COST, "predicted: 2 * run.ranks[0].num_parameters * cited['fp32-width']",
         "predicted: run.timing.wall_seconds", "run.timing.wall_seconds",
         "bytes and seconds cannot be added"),
        (COST, "predicted: 2 * run.ranks[0].num_parameters * cited['fp32-width']",
         "predicted: 2 * run.ranks[0].memory.peak_bytes", "2 * run.ranks[0].memory.peak_bytes",
         "the very field that it is drawn beside"),
        (DEEP, "question: ", "question: what-", "what-", "item in sharding/quiz.yml"),
        (DEEP, "Splitting the wrong thing\n", "Splitting\n    question: who-fits\n",
         "who-fits\n    wrong", "is of kind choice; here it must be faulty_line"),
    ],
)  # fmt: skip
def test_each_mistake_of_a_lesson_is_named_at_its_place(copy, file, old, new, at, said):
    copy.edit(file, old, new)
    before = (copy.content / file).read_text().partition(at)[0].split("\n")
    place = f"content/{file}:{len(before)}:{len(before[-1]) + 1}: "
    errors = [error.replace("\u00a0", " ") for error in copy.errors()]
    assert any(error.startswith(place) and said in error for error in errors), (place, errors)


def test_a_note_on_a_line_that_a_section_s_program_lacks_is_named_at_its_place(copy):
    text = "text: The largest layer decides.\n"
    wrong = PROGRAM.replace("total = sum(gradients)", "total = sum(gradient)")
    copy.edit(DEEP, text, text + wrong)
    (error,) = copy.errors()
    number = 1 + (copy.content / DEEP).read_text().partition("sum(gradient)")[0].count("\n")
    assert error.startswith(f"content/{DEEP}:{number}:")
    assert "did you mean 'total = sum(gradients)'?" in error


def test_a_law_without_a_formula_stands_in_no_table_of_costs(copy):
    copy.edit("claims/tiny_memory.yml", '    formula: "`2 · bytes of its layers`"\n', "")
    assert [one for one in copy.errors() if one.startswith(f"content/{COST}:")] == [
        f"content/{COST}:11:14: part-peak prints no formula; give the claim formula:"
    ]


def test_a_decision_whose_claim_does_not_hold_backs_nothing(copy):
    copy.edit("claims/tiny_training.yml", "relation: slower", "relation: faster")
    errors = copy.errors()
    assert any(
        error.startswith(f"content/{WHY}:") and "claim 'averaging-is-slower' shows nothing" in error
        for error in errors
    ), errors


def test_a_law_of_a_row_that_compares_bytes_with_seconds_is_refused_once(copy):
    copy.edit(
        "claims/tiny_training.yml", "predicted: run.model.bytes\n",
        "predicted: run.timing.wall_seconds\n",
    )  # fmt: skip
    found = copy.errors()
    assert len(found) == 1
    assert "seconds and bytes cannot be added or compared" in found[0]
