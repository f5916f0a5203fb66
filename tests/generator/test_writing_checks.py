"""Each rule of item writing has an item that it finds and one, a little mended, that it passes."""

from math import comb

import pytest

from generator.content.errors import ContentErrors
from generator.content.quiz import QuizFile
from generator.items import given_away, quiz_balance, writing_checks
from generator.items.item_seen import seen
from generator.pages import rendering

WHOLE = "tiny_memory.whole.ranks[0].memory.peak_bytes"
HALVES = "tiny_memory.halves.ranks[0].memory.peak_bytes"
LONG, SHORT = "A rank needs more memory.", "It needs less."
WHY = "The run ended so, as its trace says."
GOOD, BAD = (
    {"right_if": {"claim": "whole-peak"}},
    {"misconception": "copies-save-memory", "refuted_by": "whole-needs-more"},
)


def item(**fields):
    return QuizFile.model_validate({"items": [{"id": "an-item", "stem": "What?", **fields}]}).items[
        0
    ]


def choice(*texts, stem="What does a rank need?", **fields):
    """An item whose first option is right."""
    options = [
        {"text": text, "why": WHY, **(BAD if place else GOOD)} for place, text in enumerate(texts)
    ]
    return item(stem=stem, options=options, **fields)


def predict(high, **fields):
    return item(
        kind="predict", answer=WHOLE, low=f"{WHOLE} / 10", high=high, close={"relative": 0.1},
        reveal=WHY, misconceptions=["copies-save-memory"], **fields,
    )  # fmt: skip


def pieces(first, **fields):
    return item(
        kind="order",
        pieces=[
            {"text": first, "why": WHY, "by": WHOLE},
            {"text": "one layer", "why": WHY, "by": HALVES},
            {"text": "the model", "why": WHY, "by": "tiny_memory.whole.model.bytes"},
        ],
        **fields,
    )


def explained(why):
    given = {"text": "More.", "why": WHY, **GOOD}
    return item(options=[given, {"text": "Less.", "why": why, **BAD}])


def unnamed(**belief):
    given = {"text": "More.", "why": WHY, **GOOD}
    law = {"right_if": {"claim": "whole-peak", "verdict": "does_not_hold"}}
    return item(options=[given, {"text": "Less.", "why": WHY, **law, **belief}])


def slips(*gives, belief="copies-save-memory"):
    """An item whose wrong options are numbers."""
    made = [{"slip": {"name": "a part", "gives": one, "misconception": belief}} for one in gives]
    return item(options=[{"text": f"{{{{ {WHOLE} }}}}", "why": WHY, **GOOD}, *made])


NAMED = {"misconceptions": ["copies-save-memory"]}
CASES = {
    "all_or_none": [
        (choice("It holds all.", "None of the above."), choice("It holds all.", "None of it.")),
        (choice("More.", "Both of these."), choice("More.", "Both ranks.")),
    ],
    "negative_stem": [
        (choice("A.", "B.", stem="Which of these is not sent?"), choice("A.", "B.")),
        (choice("A.", "B.", stem="Rows are split. What does a rank never hold?"),
         choice("A.", "B.", stem="Ranks never wait. What does a rank hold?")),
        (choice("A.", "B.", stem="Which sentence is false?"),
         choice("A.", "B.", stem="Which sentence is true?")),
        (choice("A.", "B.", stem="All of these are sent, except …"),
         choice("A.", "B.", stem="What becomes of replicas that never average?")),
        (choice("A.", "B.", stem="What doesn’t travel?"), choice("A.", "B.", stem="What travels?")),
    ],
    "key_longest": [
        (choice(f"{LONG} That is so for its gradients.", "It needs little."),
         choice(f"{LONG} That is so for its gradients.", f"{LONG} That is so for its rows.")),
    ],
    "overlapping_options": [
        (choice("More memory.", "Less memory.", "more memory"),
         choice("More memory.", "Less memory.", "As much memory.")),
        (choice("More memory.", "Less time.", "More memory and less time."),
         choice("More memory.", "Less time.", "More time.")),
        (choice("They drift.", "They drift, and nobody is told."),
         choice("They drift.", "They do not drift.")),
    ],
    "said_twice": [
        (pieces("one layer", **NAMED), pieces("the whole", **NAMED)),
    ],
    "absolutes": [
        (choice("It grows.", "It always shrinks."), choice("It grows.", "It shrinks.")),
        (choice("It grows.", "Only one rank grows."), choice("Only here.", "Only one rank grows.")),
    ],
    "unexplained_option": [
        (explained("So."), explained(WHY)),
        (explained("Wrong."), explained("{{ showed('averaging-is-slower') }}")),
        (predict(f"4 * {WHOLE}").model_copy(update={"reveal": "See."}), predict(f"4 * {WHOLE}")),
    ],
    "unnamed_misconception": [
        (unnamed(), unnamed(misconception="copies-save-memory")),
        (slips(f"{WHOLE} / 2", belief=None), slips(f"{WHOLE} / 2")),
        (pieces("the whole"), pieces("the whole", **NAMED)),
    ],
    "near_options": [
        (slips(f"{WHOLE} * 1.04"), slips(f"{WHOLE} * 1.2")),
        (slips(f"{WHOLE} / 2", f"{WHOLE} * 0.51"), slips(f"{WHOLE} / 2", f"{WHOLE} * 3")),
    ],
    "too_many_options": [
        (choice("A.", "B.", "C.", "D.", "E."), choice("A.", "B.", "C.", "D.")),
    ],
    "slider_middle": [
        (predict(f"1.9 * {WHOLE}"), predict(f"4 * {WHOLE}")),
        (predict(f"10 * {WHOLE}", logarithmic=True), predict(f"40 * {WHOLE}", logarithmic=True)),
    ],
}  # fmt: skip


def fired(one, evidence):
    return {finding.rule for finding in writing_checks.findings(seen(one, evidence))}


@pytest.mark.parametrize(
    ("rule", "bad", "good"), [(rule, *pair) for rule, pairs in CASES.items() for pair in pairs]
)
def test_each_rule_finds_a_bad_item_and_passes_it_once_mended(evidence, rule, bad, good):
    assert fired(bad, evidence) == {rule}
    assert fired(good, evidence) - {"unnamed_misconception"} == set()


def test_every_rule_is_tested():
    assert set(CASES) == set(writing_checks.RULES)


@pytest.mark.parametrize("rule", list(CASES))
def test_a_finding_says_how_to_accept_it_and_is_silent_once_accepted(evidence, rule):
    bad, _ = CASES[rule][0]
    found = writing_checks.findings(seen(bad, evidence))
    said = list(writing_checks.judged(bad, found, writing_checks.RULES))
    assert len(said) == len(found)
    assert all(f"accepts: {{{rule}: …}}" in message for _, message in said)
    meant = bad.model_copy(update={"accepts": {rule: "it is what the page teaches"}})
    assert list(writing_checks.judged(meant, found, writing_checks.RULES)) == []


@pytest.mark.parametrize(
    ("accepts", "said"),
    [
        ({"absolutes": "meant"}, "absolutes finds nothing here any more; delete this line"),
        ({"absolute": "meant"}, "no rule of item writing is 'absolute'; did you mean 'absolutes'?"),
        ({"near_options": " "}, "say why near_options is meant here"),
    ],
)
def test_what_is_accepted_in_vain_or_without_a_reason_is_a_mistake(evidence, accepts, said):
    one = choice("More.", "Less.").model_copy(update={"accepts": accepts})
    found = writing_checks.findings(seen(one, evidence))
    ((path, message),) = writing_checks.judged(one, found, writing_checks.RULES)
    assert path == ("accepts", next(iter(accepts)))
    assert message == said


def test_findings_stand_at_their_place_in_the_file_and_are_accepted_there(copy):
    file = "topics/averaging/quiz.yml"
    copy.edit(file, "text: They stay equal", "text: They always stay equal")
    (error,) = copy.errors()
    assert error.startswith(f"content/{file}:38:15: 'always' stands in wrong options alone")
    accepts = "accepts: {absolutes: the belief says so itself}"
    copy.edit(file, "id: without-averaging\n", f"id: without-averaging\n    {accepts}\n")
    assert copy.errors() == []
    copy.edit(file, "text: They always stay equal", "text: They stay equal")
    (error,) = copy.errors()
    assert "absolutes finds nothing here any more" in error


def test_writing_is_judged_where_the_book_was_written_and_nowhere_else(copy):
    copy.edit("topics/averaging/quiz.yml", "text: They stay equal", "text: They always stay equal")
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    assert copy.errors() == []


def named(number, *texts, **fields):
    return choice(*texts, **fields).model_copy(update={"id": f"item-{number}"})


def topic(evidence, num_long, num_short, **fields):
    """Items with the key the longest option, and items with it the shortest."""
    items = [named(n, LONG, SHORT, "It needs some.", **fields) for n in range(num_long)]
    items += [named(90 + n, SHORT, LONG, "It needs some.", **fields) for n in range(num_short)]
    return [seen(one, evidence) for one in items]


@pytest.mark.parametrize(("num_long", "num_short"), [(3, 0), (4, 2), (6, 6)])
def test_a_key_that_is_the_longest_as_often_as_chance_allows_is_let_be(
    evidence, num_long, num_short
):
    assert quiz_balance.findings("a-topic", topic(evidence, num_long, num_short)) == {}


@pytest.mark.parametrize(("num_long", "num_short"), [(5, 0), (8, 3)])
def test_a_key_too_often_the_longest_names_the_items_to_change(evidence, num_long, num_short):
    items = topic(evidence, num_long, num_short)
    ((name, (finding,)),) = quiz_balance.findings("a-topic", items).items()
    assert finding.rule == "key_often_longest"
    assert f"in {num_long} of {num_long + num_short} items" in finding.message
    assert all(f"item-{n}" in finding.message for n in range(num_long))
    assert name == "item-0"


def test_items_that_accept_a_rule_over_the_topic_are_not_counted(evidence):
    meant = topic(evidence, 5, 0, accepts={"key_often_longest": "numbers with their units"})
    found = quiz_balance.findings("a-topic", meant)
    assert set(found) == {f"item-{n}" for n in range(5)}
    for one in meant:
        assert (
            list(writing_checks.judged(one.item, found[one.item.id], ["key_often_longest"])) == []
        )


def test_one_of_two_options_that_is_always_right_is_found(evidence):
    def yes_or_no(num):
        return [seen(named(n, "Yes", "No"), evidence) for n in range(num)]

    assert quiz_balance.findings("a-topic", yes_or_no(6)) == {}
    ((_, (finding,)),) = quiz_balance.findings("a-topic", yes_or_no(7)).items()
    assert "the first of two options is right in 7 of 7 items" in finding.message


@pytest.mark.parametrize(("num", "chance"), [(8, 0.5), (12, 1 / 3)])
def test_the_chance_of_so_many_is_the_binomial_tail(num, chance):
    for least in range(num + 1):
        tail = sum(
            comb(num, k) * chance**k * (1 - chance) ** (num - k) for k in range(least, num + 1)
        )
        assert quiz_balance.at_least([chance] * num, least) == pytest.approx(tail)


def test_different_chances_are_taken_together():
    assert quiz_balance.at_least([0.5, 0.25], 2) == pytest.approx(0.125)
    assert quiz_balance.at_least([0.5, 0.25], 1) == pytest.approx(1 - 0.5 * 0.75)


ABOVE = "<p>The whole model peaks at 160\u00a0KiB, far from 2.</p>"
ASKED = '<div class="pb-question"><form data-as="{}" data-item="an-item"></form></div>'


def number(**fields):
    return item(kind="number", answer=WHOLE, tolerance={"relative": 0.1}, why=WHY, **fields)


@pytest.mark.parametrize("role", ["commit", "before", "challenge"])
@pytest.mark.parametrize(
    ("one", "is_told"),
    [
        (number(), True),
        (number(stem="It is 160 KiB. What is it?"), True),
        (predict(f"4 * {WHOLE}"), True),
        (choice("{{ " + WHOLE + " }}", "More."), True),
        (choice("It peaks at a hundred and sixty.", "More."), False),
        (choice("The whole model peaks at", "More."), True),
        (number().model_copy(update={"answer": HALVES}), False),
        (number().model_copy(update={"answer": "tiny_memory.halves.world_size"}), False),
    ],
)  # fmt: skip
def test_an_answer_read_above_a_commitment_is_found(evidence, role, one, is_told):
    body = ABOVE + ASKED.format(role)
    assert bool(given_away.messages(body, "a.html", {"an-item": one}, evidence)) is is_told


@pytest.mark.parametrize(
    "body",
    [
        ASKED.format("commit") + ABOVE,
        ABOVE + ASKED.format("question"),
        ABOVE + ASKED.format("recall"),
        f'<div class="pb-question"><details><br>{ABOVE}</details></div>' + ASKED.format("commit"),
        "<p>1,160\u00a0KiB</p>" + ASKED.format("commit"),
        "<p>160\u00a0KiB/s is another thing than 160\u00a0KiBs</p>".replace(
            "160\u00a0KiB/s", "a rate"
        )
        + ASKED.format("commit"),
    ],
)
def test_what_stands_below_or_is_asked_after_reading_tells_nothing(evidence, body):
    assert given_away.messages(body, "a.html", {"an-item": number()}, evidence) == {}


def test_an_answer_told_above_its_question_is_refused_with_the_page(copy):
    file = "topics/sharding/quiz.yml"
    lesson = "topics/sharding/experiment.yml"
    copy.edit(lesson, "A model that does not fit is", "Out of memory in backward, and")
    with pytest.raises(ContentErrors) as refused:
        rendering.render(copy.load())
    (error,) = refused.value.errors
    assert str(error).startswith(f"content/{file}:2:9: its answer, 'Out of memory in backward'")
    assert "topics/sharding/experiment.md" in str(error)
    copy.edit(file, "who-fits\n", "who-fits\n    accepts: {answer_above: the page asks why}\n")
    assert rendering.render(copy.load())
    copy.edit("topics/sharding/experiment.yml", "Out of memory in backward, and cut", "It is cut")
    with pytest.raises(ContentErrors, match="answer_above finds nothing here any more"):
        rendering.render(copy.load())
