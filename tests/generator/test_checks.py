"""Files checked against each other and against the traces: every mistake at its place."""

import re

import pytest

from generator.content.prose import expressions
from generator.content.yaml_source import parse
from generator.evidence.evaluation import Evidence
from generator.pages import rendering

SHARDING, AVERAGING = "topics/sharding/experiment.yml", "topics/averaging/trace.yml"
DEEP = "topics/sharding/deep.yml"
QUIZ, CLAIMS = "topics/averaging/quiz.yml", "claims/tiny_memory.yml"


def test_a_mistake_in_an_expression_over_several_lines_is_told_in_one(copy):
    copy.edit(
        "topics/averaging/quiz-try.yml",
        "answer: tiny_training.averaged.epochs[-1].loss",
        'answer: "\\n\\n"',
    )
    (error,) = copy.errors()
    assert "\n" not in error


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
        ("site.yml", "memory.peak_bytes }}; a", "memory.peek_bytes }}; a", "tiny_memory.whole.r",
         "did you mean 'peak_bytes'?"),
        (SHARDING, "whole.settings", "whole.sets", "tiny_memory.whole.sets", "no field"),
        (SHARDING, "before: tiny_memory.whole.ranks[0]", "before: tiny_memory.whole.ranks[1]",
         "tiny_memory.whole.ranks[1]", "no element 1"),
        (SHARDING, "commit: who-fits", "commit: who-fist", "who-fist", "mean 'who-fits'?"),
        (SHARDING, "[whole-fails, whole-needs", "[whole-failed, whole-needs", "whole-failed",
         "no claim 'whole-failed'; did you mean 'whole-fails'?"),
        (SHARDING, "figure: bars", "figure: bras", "bras", "did you mean 'bars'?"),
        (DEEP, "    runs: [tiny_memory.halves]", "    runs: [tiny_training.drifting]",
         "tiny_training.drifting]", "records no memory, so the figure would show empty ranks"),
        (SHARDING, "[ddp-paper]", "[ddp-papers]", "ddp-papers", "no reference 'ddp-papers'; did"),
        (SHARDING, "[tiny_memory.whole_budget]", "[tiny_memory.whole_budgets]",
         "tiny_memory.whole_budgets", "did you mean 'whole_budget'?"),
        (SHARDING, "object: halve", "object: havle", "content/topics", "did you mean 'halve'?"),
        (SHARDING, "code/halve.py", "code/none.py", "content/topics", "no file"),
        (SHARDING, "path: content/topics/sharding/code/halve.py", "path: ../../etc/passwd",
         "../../etc", "'../../etc/passwd' is no code that a run executes"),
        (AVERAGING, "stage: load", "stage: laod", "laod", "recorded no stage 'laod'; did you"),
        (AVERAGING, "step: forward", "step: forwards", "forwards", "recorded no step 'forwards'"),
        (AVERAGING, "is-it-faster, w", "is-it-equal, w", "is-it-equal, w", "stands above already"),
        (AVERAGING, "run: tiny_training.averaged", "run: tiny_trainings.averaged",
         "tiny_trainings.averaged", "no trace of 'tiny_trainings' on any machine"),
        (QUIZ, "misconception: loss-decides", "misconception: loss-decided", "loss-decided",
         "no misconception 'loss-decided'"),
        (QUIZ, "right_if: {claim: averaging-is-equal, verdict: does_not_hold}",
         "right_if: {claim: averaging-is-equal}", "is-it-equal", "has 2 keys: 'Yes' and 'No'"),
        (QUIZ, "right_if: {claim: replicas-drift}",
         "right_if: {claim: replicas-drift, verdict: no_evidence}", "without-av", "has no key"),
        (QUIZ, "right_if: {claim: replicas-drift}", "right_if: {claim: replicas-drifted}",
         "replicas-drifted", "no claim 'replicas-drifted'"),
        ("misconceptions.yml", "    source: ddp-paper\n", "", "id: loss-d", "needs refuted_by"),
        ("references.yml", "https://arxiv", "http://arxiv", "http://arxiv", "linked by https"),
        ("statements.yml", "claim: halves-complete", "claim: halves-completed",
         "halves-completed", "no claim 'halves-completed'"),
        (CLAIMS, "predicted: 2 * tiny_memory.whole.model.bytes",
         "predicted: tiny_memory.whole.ranks[0].memory.peak_bytes",
         "tiny_memory.whole.ranks[0]", "the very field"),
        (CLAIMS, "observed: tiny_memory.halves_budget", "observed: tiny_memory.gone",
         "tiny_memory.gone", "no run 'gone'"),
        (CLAIMS, "field: tiny_memory.halves_budget.status", "field: tiny_memory.halves_budget.sta",
         "tiny_memory.halves_budget.sta,", "no 'sta' on the path"),
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
    falsified_by: {field: "tiny_memory.whole.ranks[0].memory.peak_bytes", value: 1}
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


def test_deleting_a_claims_support_is_an_error(copy):
    copy.change_run("tiny_training.averaged", epochs=[])
    errors = copy.errors()
    assert any(error.startswith("content/claims/tiny_training.yml") for error in errors)


def test_markup_in_every_text_of_the_book_is_shown_as_text(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")  # where no writing is judged
    for document in copy.load().documents:
        source = document.source
        path = copy.content / source.file.removeprefix("content/")
        lines = path.read_text().splitlines()
        texts = [
            one
            for one in document.fields
            if one.mark in ("line", "prose") and one.path[-1] != "term"  # lessons must use it
        ]
        assert texts or path.name in ("references.yml", "glossary.yml")
        path.write_text(_with(lines, source, texts))
    assert copy.errors() == []
    rendered = rendering.render(copy.load())
    shown = 0
    for text in rendered.values():
        assert not re.search(r"<script>alert|<b onclick", text)
        shown += text.count("&lt;script&gt;")
    assert shown > 100


def _evil(text, number):
    """Markup instead of a text: unlike any other, with the expressions that it had."""
    word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    kept = " ".join(f"{{{{ {one.text} }}}}" for one in expressions(text))
    return f"<script>alert(`x`)</script><b onclick=x> {word} gradient {kept}".strip()


def _with(lines, source, texts):
    """The file with every text replaced, as YAML that keeps the rest as it is."""
    import yaml

    document = yaml.safe_load("\n".join(lines).replace("e-5", "0e-5"))
    for number, one in enumerate(texts):
        place = document
        for part in one.path[:-1]:
            place = place[part]
        place[one.path[-1]] = _evil(one.text, number)
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    assert parse(source.file, text)
    return text
