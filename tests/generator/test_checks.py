"""Files checked against each other and against the traces: every mistake at its place."""

import pytest

from generator.evidence.evaluation import Evidence

SHARDING, AVERAGING = "topics/sharding/experiment.yml", "topics/averaging/trace.yml"
DEEP = "topics/sharding/deep.yml"
QUIZ, CLAIMS = "topics/averaging/quiz.yml", "claims/tiny_memory.yml"


def test_output_is_shown_only_below_the_program_that_printed_it(copy):
    learn, folder = "content/topics/averaging/learn.yml", "content/topics/averaging/code"
    settings = copy.load().run("tiny_training.averaged").settings

    def told(executed):
        changed = {**settings, "program": f"{folder}/{executed}"}
        copy.change_run("tiny_training.averaged", settings=changed)
        return [error for error in copy.errors() if error.startswith(learn)]

    assert told("mean.py") == []
    (error,) = told("other.py")
    assert error.endswith(f"tiny_training.averaged executed {folder}/other.py, not this file")


@pytest.mark.parametrize(
    ("file", "old", "new", "at", "said"),
    [
        (SHARDING, "cut in two.", "cut into 2.", "2.", "bare numeral '2'"),
        (SHARDING, "  The whole model of", "  Twice the model of", "Twice", "spelled quantity"),
        ("site.yml", "Ranks of {{ tiny_memory.whole_budget",
         "Ranks of {{ tiny_memory.whole_budgit", "tiny_memory.whole_b",
         "did you mean 'whole_budget'?"),
        (SHARDING, 'cells: ["tiny_memory.whole.ranks[0]', 'cells: ["tiny_memory.whole.ranks[1]',
         '"tiny_memory.whole.ranks[1]', "no element 1"),
        (SHARDING, "commit: who-fits", "commit: who-fist", "who-fist", "mean 'who-fits'?"),
        (SHARDING, "[whole-fails, whole-needs", "[whole-failed, whole-needs", "whole-failed",
         "no claim 'whole-failed'; did you mean 'whole-fails'?"),
        (SHARDING, "figure: bars", "figure: bras", "bras", "did you mean 'bars'?"),
        (DEEP, "[tiny_memory.whole, tiny_memory.halves]", "[tiny_training.drifting]",
         "tiny_training.drifting]", "records no memory, so the figure would show empty ranks"),
        (SHARDING, "[ddp-paper]", "[ddp-papers]", "ddp-papers", "no reference 'ddp-papers'; did"),
        (SHARDING, "output: tiny_memory.whole_budget", "output: tiny_memory.whole_budgets",
         "tiny_memory.whole_budgets", "did you mean 'whole_budget'?"),
        (SHARDING, "object: halve", "object: havle", "content/topics", "did you mean 'halve'?"),
        (SHARDING, "path: content/topics/sharding/code/halve.py", "path: ../../etc/passwd",
         "../../etc", "'../../etc/passwd' is no code that a run executes"),
        (AVERAGING, "stage: load", "stage: laod", "laod", "recorded no stage 'laod'; did you"),
        (AVERAGING, "is-it-faster, w", "is-it-equal, w", "is-it-equal, w", "stands above already"),
        (AVERAGING, "run: tiny_training.averaged", "run: tiny_trainings.averaged",
         "tiny_trainings.averaged", "no trace of 'tiny_trainings' on any machine"),
        (QUIZ, "right_if: {claim: averaging-is-equal, verdict: does_not_hold}",
         "right_if: {claim: averaging-is-equal}", "is-it-equal", "has 2 keys: 'Yes' and 'No'"),
        (QUIZ, "right_if: {claim: replicas-drift}",
         "right_if: {claim: replicas-drift, verdict: no_evidence}", "without-av", "has no key"),
        ("misconceptions.yml", "    source: ddp-paper\n", "", "id: loss-d", "needs refuted_by"),
        ("references.yml", "https://arxiv", "http://arxiv", "http://arxiv", "url: must match"),
        (CLAIMS, "predicted: 2 * tiny_memory.whole.model.bytes",
         "predicted: tiny_memory.whole.ranks[0].memory.peak_bytes",
         "tiny_memory.whole.ranks[0]", "the very field"),
        (CLAIMS, "observed: tiny_memory.halves_budget", "observed: tiny_memory.gone",
         "tiny_memory.gone", "no run 'gone'"),
        ("claims/tiny_training.yml", "does_not_hold: Averaging was",
         "does_not_hold: \"{{ showed('averaging-is-slower') }}\"\n      too_few_samples: It was",
         "showed('av", "cannot quote a claim's sentence"),
        (CLAIMS, "{relative: 0.05}", "{}", "{}", "give relative or absolute"),
    ],
)  # fmt: skip
def test_each_mistake_is_named_at_its_place(copy, file, old, new, at, said):
    copy.edit(file, old, new)
    before = (copy.content / file).read_text().partition(at)[0].split("\n")
    place = f"content/{file}:{len(before)}:{len(before[-1]) + 1}: "
    errors = copy.errors()
    assert any(error.startswith(place) and said in error for error in errors), (place, errors)


def test_a_claim_that_refutes_must_hold(copy):
    copy.change_run("tiny_memory.whole", world_size=1)
    copy.edit(CLAIMS, "relation: above", "relation: below")
    assert any("shows nothing: does_not_hold" in error for error in copy.errors())


BROKEN_LAW = """\
  - id: broken-law
    kind: law
    says: The whole needs fewer tensor bytes.
    predicted: tiny_memory.halves.ranks|each('memory.peak_bytes')|largest
    relation: below
    observed: tiny_memory.whole.ranks[0].memory.peak_bytes
"""


def test_a_law_that_fails_is_no_mistake_of_the_content_until_it_is_shown_as_evidence(copy):
    copy.append(CLAIMS, BROKEN_LAW)
    assert Evidence(copy.load()).outcome("broken-law").is_broken_law
    assert copy.errors() == []
    copy.edit(QUIZ, "refuted_by: replicas-drift", "refuted_by: broken-law")
    (error,) = copy.errors()
    assert "claim 'broken-law' shows nothing: does_not_hold" in error


def test_a_sentence_rests_on_a_claim_that_holds_on_the_reference_machine(copy):
    rests = "A step takes longer{{ holds('averaging-is-slower') }}."
    copy.edit(AVERAGING, "introduction: |\n", f"introduction: |\n  {rests}\n\n")
    assert copy.errors() == []
    copy.edit("claims/tiny_training.yml", "relation: slower", "relation: faster")
    assert any("rests on averaging-is-slower, which does" in error for error in copy.errors())
    assert Evidence(copy.load()).plain(rests) == "A step takes longer (does not hold)."
