"""The real book over the committed traces: invariants only, since every rerun changes numbers."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from generator.checks.content_checks import check
from generator.content import committed
from generator.content.book import load
from generator.content.errors import ContentError
from generator.evidence import calculator, verdicts
from generator.evidence.evaluation import Evidence
from generator.evidence.falsify import changes, falsifier, falsify, steps_of
from generator.items.keys import key_of
from runners.traces.records import Trace

CONTENT = Path(__file__).parents[2] / "content"
FACTORS = (0.001, 0.1, 0.5, 2, 10, 1000)


@pytest.fixture(scope="module")
def real():
    """The book as its reference machine shows it, whatever this machine has measured."""
    (folder,) = (path.parent for path in CONTENT.glob("traces/reference-*/machine.json"))
    return load(CONTENT, folder.name, is_stale=lambda _: False)


@pytest.fixture(scope="module")
def outcomes(real):
    return verdicts.judge(real, Evidence(real))


def test_no_site_gives_more_than_three_statements_and_no_question_is_one(real):
    sites = Counter()
    for one in real.retractions.values():
        url = urlsplit(real.references[one.source].url)
        sites[url.hostname.removeprefix("www.")] += 1
        assert not re.search(r"\b(?:question|asks?|asked)\b", one.where), one.id
        assert not re.search(r"/questions?/\d", url.path), one.id
    assert {site: number for site, number in sites.items() if number > 3} == {}


def test_the_book_has_no_mistake(real):
    assert [str(error) for error in check(Evidence(real))] == []


def test_every_law_holds_or_says_why_it_does_not_apply(outcomes):
    broken = {name: o.explanation for name, o in outcomes.items() if o.is_broken_law}
    assert broken == {}


def test_every_claim_that_holds_stops_holding_once_one_field_is_changed(real, outcomes):
    """A claim that no change of a field can refute is not a claim."""
    evidence = Evidence(real)
    found = {name: falsifier(evidence, claim) for name, claim in real.claims.items()}
    holding = {name for name, outcome in outcomes.items() if outcome.verdict == "holds"}
    assert [name for name in holding if found[name] is None] == []
    still = []
    for name, change in found.items():
        if name in holding:
            changed = Evidence(replace(real, traces=falsify(real.traces, change)))
            still += [name] if changed.outcome(name).verdict == "holds" else []
    assert still == []


def made_to_hold(real, claim):
    """The traces changed so that a claim holds which does not; as they were where nothing helps."""
    for candidate in (*exchanged(real, claim), *moved(real, claim)):
        if Evidence(replace(real, traces=candidate)).outcome(claim.id).verdict == "holds":
            return candidate
    return real.traces


def exchanged(real, claim):
    """What the claim observes and predicts exchanged, where both are fields of one trace."""
    try:
        yield _exchanged(real, claim)
    except (ValueError, TypeError, KeyError):
        return  # one of them is a number, a formula, or a field found by name


def moved(real, claim):
    """The field that the claim's falsifier changes, moved to either side, or onto the word.

    On its rank alone, and on every rank.
    """
    outcome = Evidence(real).outcome(claim.id)
    numbers = [outcome.predicted.number, outcome.observed.number]
    values = [
        value * factor for value in numbers for factor in FACTORS if not isinstance(value, str)
    ]
    named = claim.falsified_by or next(changes(Evidence(real), claim))
    field, listed = named.field, named.value
    numbers += [n for n in [in_proportion(real, field, *numbers)] if n is not None]
    ranks = [re.sub(r"\branks\[\d+\]", f"ranks[{rank}]", field) for rank in range(8)]
    for value in [*numbers, *values, *map(round, values), 0, 1]:
        put = [float(value)] * len(listed) if isinstance(listed, list) else value
        yield from _put(real.traces, named, [field], put)
        yield from _put(real.traces, named, ranks, put)


def in_proportion(real, field, predicted, observed):
    """The field were the observed number the predicted one; None for what is no number."""
    evidence = Evidence(real)
    now = evidence.comparable(evidence.evaluate(field))
    if not all(isinstance(n, int | float) for n in (getattr(now, "number", None), predicted)):
        return None
    return now.number * predicted / observed if observed else None


def _put(traces, named, fields, value):
    """The traces with a value in all those of the fields that there are and that can hold it."""
    for field in dict.fromkeys(fields):
        change = named.model_copy(update={"field": field, "value": value, "same_as": None})
        try:
            traces = falsify(traces, change)
        except ValueError:
            continue
    yield traces


def _exchanged(real, claim):
    experiment, *observed = steps_of(claim.observed.partition("|")[0].strip())
    _, *predicted = steps_of(claim.predicted.partition("|")[0].strip())
    shown = real.traces[experiment]
    document = shown.trace.model_dump(mode="json")
    holders = []
    for *path, last in (observed, predicted):
        holder = document["runs"]
        for step in path:
            holder = holder[step]
        holders.append((holder, last))
    (left, one), (right, other) = holders
    left[one], right[other] = right[other], left[one]
    if claim.relation == "equals":
        left[one] = right[other]
    return {**real.traces, experiment: replace(shown, trace=Trace.model_validate(document))}


def keys_under(real, item, traces):
    """The key of an item under other traces; None where it has none, or two."""
    try:
        return key_of(item, Evidence(replace(real, traces=traces)))
    except ContentError:
        return None


def turned(real, outcomes, claim):
    """The traces that turn a claim round."""
    if outcomes[claim].verdict == "does_not_hold":
        return made_to_hold(real, real.claims[claim])
    return falsify(real.traces, falsifier(Evidence(real), real.claims[claim]))


def test_every_key_moves_once_a_claim_behind_it_turns(real, outcomes):
    evidence, stuck, num_moved = Evidence(real), [], 0
    for item in (item for topic in real.topics for item in topic.items.values()):
        key = key_of(item, evidence)
        for position in key.right if item.kind in ("choice", "several") else ():
            claim = item.options[position].right_if.claim
            moved = keys_under(real, item, turned(real, outcomes, claim))
            stuck += [item.id] if moved == key else []
            num_moved += moved != key
    assert stuck == []
    assert num_moved >= len(real.topics)


def test_at_least_seven_kinds_of_item_are_used_more_than_once(real):
    kinds = Counter(item.kind for topic in real.topics for item in topic.items.values())
    assert len(kinds) >= 7
    assert min(kinds.values()) >= 2


def test_every_claim_that_does_not_hold_would_hold_on_other_traces(real, outcomes):
    stuck = []
    for name, claim in real.claims.items():
        if outcomes[name].verdict != "does_not_hold":
            continue
        changed = replace(real, traces=made_to_hold(real, claim))
        stuck += [name] if Evidence(changed).outcome(name).verdict != "holds" else []
    assert stuck == []


def test_every_run_of_the_committed_traces_ended_as_declared(real):
    found = {name: verdicts.surprises(shown) for name, shown in real.traces.items()}
    assert {name: runs for name, runs in found.items() if runs} == {}


def test_no_claim_predicts_from_what_it_observes(real):
    evidence = Evidence(real)
    for claim in real.claims.values():
        predicted, observed = evidence.evaluate(claim.predicted), evidence.evaluate(claim.observed)
        assert not set(predicted.measured) & set(observed.measured), claim.id


def test_the_smallest_program_of_every_lesson_was_executed_and_printed_what_the_page_shows(real):
    programs = [t.lessons["learn"].model.program for t in real.topics if "learn" in t.lessons]
    assert programs
    for program in programs:
        run = real.run(program.run)
        assert run.settings["program"] == program.path
        assert run.status == "completed"
        assert run.printed


def test_every_formula_of_a_calculator_was_compared_with_runs_of_this_book(real):
    evidence = Evidence(real)
    lessons = [t.lessons["cost"].model for t in real.topics if "cost" in t.lessons]
    assert lessons
    for written in (lesson.calculator for lesson in lessons):
        for output in written.outputs:
            found = calculator.checks(output, written, evidence)
            assert len(found) == len(output.checked_on)


def test_a_second_machine_is_committed(real):
    others = committed.machines(CONTENT) - {real.reference.name}
    if not (CONTENT.parent / ".git").exists():
        pytest.skip("this tree is no clone")
    assert others
    for name in others:
        measured = real.machines[name]
        assert len(measured.traces) > 20
        assert measured.machine.num_cores < real.reference.num_cores
