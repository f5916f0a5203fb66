"""Verdicts: each relation, each domain, each lack; and rules over a list."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from proofbook.generator.checks import claim_checks, trace_checks
from proofbook.generator.content.cases import ClaimIndex
from proofbook.generator.content.claim import Claim, ClaimFile, Constant
from proofbook.generator.values import list_sides
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.regime import line, optimizer_of
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.system.book import experiment_files, experiments_in

PEAK = "tiny_memory.whole.ranks[0].memory.peak_bytes"
BUDGET = "tiny_memory.whole_budget.budget_bytes"
STATUS = "tiny_memory.whole_budget.status"
HALVES = "tiny_memory.halves"
PARTS = f"{HALVES}.ranks | each('num_parameters')"


def claim(predicted, relation, observed, **fields):
    return Claim(
        id="a-claim", kind=fields.pop("kind", "law"), says="It is so.", predicted=predicted,
        relation=relation, observed=observed,
        **fields,
    )  # fmt: skip


def judged(book, one):
    if one.predicted.isdigit():  # which no claim may state without a name
        number = Constant(value=int(one.predicted), unit="plain", means="it", source="this test")
        book = replace(book, given={"number": number})
        one = one.model_copy(update={"predicted": "given['number']"})
    return Evidence(replace(book, claim_index=ClaimIndex({one.id: one}))).judged(one.id)


@pytest.mark.parametrize(
    ("predicted", "relation", "observed", "holds"),
    [
        ("163999", "equals", PEAK, False),
        ("164000", "differs", PEAK, False),
        ("164001", "at_least", PEAK, False),
        ("163999", "at_most", PEAK, False),
        ("164000", "at_least", PEAK, True),
        ("164000", "at_most", PEAK, True),
        ("164000", "above", PEAK, False),
        ("164000", "below", PEAK, False),
        (BUDGET, "above", PEAK, True),
        (BUDGET, "below", PEAK, False),
        ("'out_of_memory'", "equals", STATUS, True),
        ("'out of memory'", "equals", STATUS, True),
        ("'completed'", "differs", STATUS, True),
        ("160000", {"relative": 0.025}, PEAK, True),  # a tolerance of equality
        ("160000", {"relative": 0.024}, PEAK, False),
        ("160000", {"absolute": 3999}, PEAK, False),
    ],
)
def test_each_relation_of_numbers_and_words_and_each_tolerance(
    book, predicted, relation, observed, holds
):
    fields = {"tolerance": relation} if isinstance(relation, dict) else {}
    one = claim(predicted, "equals" if fields else relation, observed, **fields)
    outcome = judged(book, one)
    assert outcome.verdict == ("holds" if holds else "does_not_hold")
    assert outcome.error is None


def timed(book, single, averaged):
    """The book with other step times."""
    shown = book.traces["tiny_training"]
    runs = dict(shown.trace.runs)
    for name, seconds in (("single", single), ("averaged", averaged)):
        timing = runs[name].timing.model_copy(update={"step": SampledSeconds.of(seconds)})
        runs[name] = runs[name].model_copy(update={"timing": timing})
    trace = shown.trace.model_copy(update={"runs": runs})
    return replace(book, traces={**book.traces, "tiny_training": replace(shown, trace=trace)})


SLOW, FAST, MIXED = [5.0, 5.1, 5.2, 5.3, 5.4], [1.0, 1.1, 1.2, 1.3, 1.4], [1.2, 3, 5.1, 5.2, 6]


@pytest.mark.parametrize(
    ("single", "averaged", "relation", "verdict"),
    [
        (SLOW, FAST, "faster", "holds"),
        (FAST, SLOW, "faster", "does_not_hold"),
        (SLOW, FAST, "slower", "does_not_hold"),
        (SLOW, MIXED, "faster", "not_distinguishable"),
        (SLOW, FAST[:4], "faster", "no_evidence"),
    ],
)
def test_times_are_compared_by_quartile_ranges(book, single, averaged, relation, verdict):
    one = claim("tiny_training.single.timing.step", relation, "tiny_training.averaged.timing.step")
    outcome = judged(timed(book, single, averaged), one)
    assert outcome.verdict == verdict
    assert outcome.observed.number == SampledSeconds.of(averaged).median_seconds


@pytest.mark.parametrize(
    ("single", "averaged", "verdict"),
    [
        ({}, {"device": "cuda"}, "does_not_apply"),
        ({"world_size": 2, "device": "cuda", "backend": "nccl"}, {"device": "cuda"},
         "does_not_apply"),
        ({"world_size": 1, "device": "cuda", "backend": "nccl"}, {"device": "cuda"}, "holds"),
        ({"world_size": 2, "device": "cuda", "backend": "gloo"}, {"device": "cuda"}, "holds"),
    ],
)  # fmt: skip
def test_times_on_two_kinds_of_device_or_over_two_backends_are_not_compared(
    book, single, averaged, verdict
):
    one = claim("tiny_training.single.timing.step", "faster", "tiny_training.averaged.timing.step")
    book = timed(book, SLOW, FAST)
    runs = book.traces["tiny_training"].trace.runs
    for name, changed in (("single", single), ("averaged", averaged)):
        runs[name] = runs[name].model_copy(update=changed)
    outcome = judged(book, one)
    assert outcome.verdict == verdict
    assert ("different kinds of device" in outcome.explanation) == (not single)


def test_a_law_outside_its_domain_does_not_apply_and_says_why(book):
    domain = {"device": ["cuda"], "because": "There are no kernels here."}
    outcome = judged(book, claim("1", "equals", PEAK, domain=domain))
    assert outcome.verdict == "does_not_apply"
    assert outcome.explanation == "There are no kernels here."
    assert not outcome.is_broken_law
    on_gloo = claim("164000", "equals", PEAK, domain={"backend": ["gloo"]})
    assert judged(book, on_gloo).verdict == "holds"


@pytest.mark.parametrize(
    ("status", "verdict"), [("skipped", "does_not_apply"), ("died", "no_evidence")]
)
def test_a_skipped_run_makes_a_law_not_apply_and_a_surprise_breaks_it(copy, status, verdict):
    copy.change_run("tiny_memory.whole", status=status, ranks=[])
    outcome = judged(copy.load(), claim(BUDGET, "above", PEAK))
    assert outcome.verdict == verdict
    assert (outcome.explanation == "a run that it needs was skipped") == (status == "skipped")
    assert outcome.is_broken_law == (status == "died")


@pytest.mark.parametrize(
    ("expected", "verdict"), [("completed", "no_evidence"), ("failed", "holds")]
)
def test_times_of_a_run_count_unless_it_failed_and_was_to_complete(book, expected, verdict):
    one = claim("tiny_training.single.timing.step", "faster", "tiny_training.averaged.timing.step")
    book = timed(book, SLOW, FAST)
    runs = book.traces["tiny_training"].trace.runs
    ended = {"status": "failed", "expected_status": expected}
    runs["averaged"] = runs["averaged"].model_copy(update=ended)
    assert judged(book, one).verdict == verdict


def test_verdicts_of_a_stale_trace_are_left_out_but_not_on_the_reference_machine(copy):
    one = claim(BUDGET, "above", PEAK)
    assert judged(copy.load(is_stale=lambda _: True), one).verdict == "holds"
    copy.add_machine("desk", "tiny_memory")
    outcome = judged(copy.load(is_stale=lambda _: True), one)
    assert (outcome.verdict, outcome.on_reference) == ("no_evidence", False)
    assert "stale" in outcome.explanation


@pytest.mark.parametrize(
    ("predicted", "relation", "observed", "said"),
    [
        ("1", "equals", BUDGET, "observes nothing that a run measured"),
        ("'word'", "equals", PEAK, "'word': text, because it stands in quotes"),
        ("'word'", "above", "tiny_memory.whole_budget.status", "compares numbers, not words"),
        ("1", "faster", PEAK, "compare samples"),
        ("tiny_training.single.timing.step", "equals", PEAK, "two single values"),
        ("predicted('a-claim')", "equals", PEAK, "depends on its own verdict"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_judged_is_an_error(book, predicted, relation, observed, said):
    assert said in judged(book, claim(predicted, relation, observed)).error


def test_a_law_whose_completed_run_lacks_the_value_is_broken_on_any_machine(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    ranks = copy.recorded("tiny_memory.whole", "desk")["ranks"]
    for rank in ranks:
        rank["memory"] = None
    copy.change_run("tiny_memory.whole", "desk", ranks=ranks)
    outcome = Evidence(copy.load()).judged("whole-peak")
    assert outcome.verdict == "no_evidence"
    assert outcome.is_broken_law


def test_a_prediction_that_the_runs_lack_is_no_evidence_and_no_mistake(copy):
    copy.change_run("tiny_memory.whole", status="died", ranks=[])
    outcome = judged(copy.load(), claim(PEAK, "equals", f"{HALVES}.ranks[0].memory.peak_bytes"))
    assert (outcome.verdict, outcome.error) == ("no_evidence", None)


def test_runs_of_two_machines_are_not_compared(copy):
    copy.add_machine("desk", "tiny_training")
    copy.remove_run("tiny_training.averaged", "desk")
    copy.remove_run("tiny_training.single")  # so no machine has both
    one = claim("tiny_training.single.timing.step", "faster", "tiny_training.averaged.timing.step")
    outcome = judged(copy.load(), one)
    assert (outcome.verdict, outcome.error) == ("does_not_apply", None)
    assert outcome.explanation == "different machines measured its runs"


def test_problems_name_surprises_broken_laws_and_stale_references(copy):
    copy.change_run("tiny_memory.halves_budget", status="out_of_memory")
    book = copy.load(is_stale=lambda trace: trace.experiment == "tiny_training")
    assert trace_checks.problems(book, Evidence(book).judged_claims) == [
        "tiny_memory.halves_budget: ended out_of_memory, expected completed",
        "tiny_training: the reference machine's trace is stale; run `python -m runners run "
        "tiny_training --as-reference --full`",
        "content/claims/tiny_memory.yml:21:5: law halves-complete: does not hold (observed differs "
        "from predicted): predicted completed = 'completed', observed out_of_memory = "
        "tiny_memory.halves_budget.status",
    ]


def test_a_broken_law_over_a_list_prints_the_first_elements_that_break_it(book):
    law = claim("7", "above", "tiny_training.averaged.epochs | each('loss')")
    law = law.model_copy(update={"id": "losses"})
    written = {"losses": next(iter(book.claim_index.written.values()))}
    changed = replace(book, claim_index=ClaimIndex({"losses": law}, written=written))
    (error,) = claim_checks.broken_laws(changed, Evidence(changed).judged_claims)
    assert error.file == "content/claims/" + error.file.rpartition("/")[2]
    assert "predicted 7 = 7, observed" in error.message
    assert "tiny_training.averaged.epochs[" in error.message


# --- a list on a side: a rule for every rank or step, refuted by any of them


def with_ranks(copy, field, values):
    """The copy's run with one value of a field for each rank."""
    ranks = copy.recorded(HALVES)["ranks"]
    assert len(ranks) == len(values)
    changed = [{**rank, field: value} for rank, value in zip(ranks, values, strict=True)]
    copy.change_run(HALVES, ranks=changed)
    return copy.load()


@pytest.mark.parametrize(
    ("values", "relation", "within", "holds"),
    [
        ([7, 7], "equals", 0, True),
        ([7, 8], "equals", 0, False),
        ([7, 8], "equals", 1, True),
        ([7, 9], "equals", 1, False),
        ([8, 7], "above", 0, False),
    ],
)
def test_a_rule_holds_where_it_holds_for_each(copy, values, relation, within, holds):
    book = with_ranks(copy, "num_parameters", values)
    fields = {"tolerance": {"absolute": within}} if within else {}
    outcome = judged(book, claim("7", relation, PARTS, **fields))
    assert outcome.verdict == ("holds" if holds else "does_not_hold")
    assert "for each rank" in outcome.explanation


def test_two_lists_are_compared_element_by_element(copy):
    book = with_ranks(copy, "num_parameters", [7, 8])
    start = with_ranks(copy, "num_samples", [7, 8])
    samples = PARTS.replace("num_parameters", "num_samples")
    assert judged(start, claim(samples, "equals", PARTS)).verdict == "holds"
    assert str(judged(book, claim("7", "equals", PARTS)).observed) == "7, 8"
    assert str(judged(start, claim(samples, "equals", PARTS)).observed) == "7, 8"


@pytest.mark.parametrize(
    ("predicted", "observed", "relation", "said"),
    [
        (f"{HALVES}.ranks[0].memory", PARTS, "equals", "a list as long"),
        (f"{HALVES}.ranks[:1] | each('num_samples')", PARTS, "equals", "a list as long"),
        (PARTS, f"{HALVES}.ranks | each('num_samples')", "faster", "and no lists"),
    ],
)
def test_what_cannot_be_compared_one_by_one_is_said(copy, predicted, observed, relation, said):
    book = with_ranks(copy, "num_samples", [7, 7])
    assert said in judged(book, claim(predicted, relation, observed)).error


@pytest.mark.parametrize(
    ("observed", "counted"),
    [
        (PARTS, "rank"),
        (f"{HALVES}.ranks | each('epochs[-1].loss')", "rank"),
        (f"{HALVES}.ranks[0].epochs | each('loss')", "epoch"),
        (f"{HALVES}.step_losses[1:]", "step"),
        (f"{HALVES}.ranks[0].facts", "value"),
    ],
)
def test_what_is_counted_is_what_the_rule_goes_through(observed, counted):
    assert list_sides.element_noun(observed) == counted


# --- laws over several runs: one rule, a verdict a run, ids that stay


CLAIMS = "claims/tiny_memory.yml"
LAW = """\
  - id: ends-as-declared
    for: [tiny_memory.whole_budget, tiny_memory.halves_budget]
    says: "Under its budget, {{ run.world_size }} ranks end as declared."
    predicted: "'deadlocked'"
    relation: differs
    observed: run.status
"""
OF_WHOLE, OF_HALVES = (f"ends-as-declared@tiny_memory.{run}_budget" for run in ("whole", "halves"))


def test_a_law_is_judged_once_a_run_and_its_texts_name_that_run(copy):
    copy.append(CLAIMS, LAW)
    book = copy.load()
    evidence = Evidence(book)
    assert copy.errors() == []
    assert book.claim_index.of_claim["ends-as-declared"] == (OF_WHOLE, OF_HALVES)
    assert [evidence.judged(one).verdict for one in (OF_WHOLE, OF_HALVES)] == ["holds", "holds"]
    assert evidence.judged(OF_WHOLE).runs == ("tiny_memory.whole_budget",)
    assert evidence.judged(OF_HALVES).observed.formula == "tiny_memory.halves_budget.status"
    ranks = [book.run(f"tiny_memory.{run}_budget").world_size for run in ("whole", "halves")]
    said = [evidence.plain(book.claims[one].says) for one in (OF_WHOLE, OF_HALVES)]
    assert said == [f"Under its budget, {num} ranks end as declared." for num in ranks]


def test_a_run_may_have_a_sentence_of_its_own(copy):
    own = "{run: tiny_memory.halves_budget, says: The halves complete.}"
    copy.append(CLAIMS, LAW.replace("tiny_memory.halves_budget]", f"{own}]", 1))
    book = copy.load()
    assert book.claims[OF_HALVES].says == "The halves complete."
    assert "tiny_memory.whole_budget.world_size" in book.claims[OF_WHOLE].says


# --- the regime of a claim, and times of ranks that took turns


AVERAGED = "tiny_training.averaged"


def regime(book, name):
    claim = book.claims[name]
    runs = {one: book.run(one) for one in Evidence(book).judged(name).runs}
    return line(claim, runs, lambda run: run.strategy)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ([("GPipe", 4), ("1F1B", 4)], "GPipe and 1F1B over four ranks; "),
        ([("GPipe", 4), ("1F1B", 4), ("single", 1)],
         "GPipe and 1F1B over four ranks, and single; "),
        ([("a", 2), ("a", 4)], "a over two ranks and over four ranks; "),
    ],
)  # fmt: skip
def test_what_several_runs_of_a_regime_share_stands_once(book, kinds, said):
    one = book.run(AVERAGED)
    runs = {
        f"{AVERAGED}{place}": one.model_copy(update={"strategy": name, "world_size": num})
        for place, (name, num) in enumerate(kinds)
    }
    assert line(book.claims["averaging-is-equal"], runs, lambda run: run.strategy).startswith(said)


def test_ranks_take_turns_on_what_their_device_has(book):
    run = book.run(AVERAGED)
    timing = run.timing.model_copy(update={"oversubscribed": True})
    runs = {AVERAGED: run.model_copy(update={"device": "cuda", "timing": timing})}
    said = line(book.claims["averaging-is-equal"], runs, lambda run: run.strategy)
    assert said.startswith("ddp over two ranks (more than accelerators); gloo on cuda; ")


def test_a_launcher_and_a_simulation_are_one_process_of_several_ranks(copy):
    whole = copy.recorded("tiny_memory.whole")["settings"]
    of_two = {"settings": {**whole, "num_ranks": 2}}
    copy.change_run("tiny_memory.whole", **of_two, strategy="ddp")
    assert regime(copy.load(), "whole-peak").startswith("ddp over two ranks; ")
    of_many = {"settings": {**whole, "num_ranks": 64}, "nature": "simulated"}
    copy.change_run("tiny_memory.whole", **of_many, strategy="ddp")
    assert regime(copy.load(), "whole-peak").startswith(
        "ddp on one of {{ tiny_memory.whole.settings.num_ranks }} ranks; simulated;"
    )
    copy.change_run("tiny_memory.whole", **of_many, strategy="single")
    assert regime(copy.load(), "whole-peak").startswith("single; simulated;")


CODE = re.compile(r"\boptim\.(SGD|Adam)\b|\b(optimizer_for|sgd_steps)\b")


def optimizers_of(experiment):
    """The optimizers that the code of an experiment makes; that of `training/steps.py` is SGD."""
    made = CODE.findall(experiment_files()[experiment].read_text())
    return {"SGD" if of_steps else name for name, of_steps in made}


def files(book):
    """Each file of claims, with whether its experiment's runs name their optimizer themselves."""
    for document in book.documents:
        if isinstance(document.model, ClaimFile):
            name = Path(document.source.file).stem
            runs = book.traces[name].trace.runs.values()
            yield name, document.model.regime, any(optimizer_of(run) for run in runs)


def test_the_optimizer_that_a_file_of_claims_states_is_the_one_in_the_code(real):
    stated = [(name, one.optimizer) for name, one, is_recorded in files(real) if not is_recorded]
    assert len(stated) > 20
    for name, optimizer in stated:
        if optimizer is not None and name != "listings":
            expected = optimizers_of(name)
            # Of a file of several experiments, one may update nothing.
            has_none = not expected or len(experiments_in(experiment_files()[name])) > 1
            assert optimizer in expected or (optimizer == "none" and has_none), name
