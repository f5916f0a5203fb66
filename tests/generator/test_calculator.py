"""Calculators: compared with the runs that they name, and what authors get wrong in them."""

import json

import pytest
import yaml

from generator.evidence import calculator
from generator.evidence.evaluation import Evidence

COST = "topics/averaging/cost.yml"


def written(book):
    topic = next(topic for topic in book.topics if topic.id == "averaging")
    return topic.lessons["cost"].model.calculator


def checks(output, evidence):
    return calculator.checks(output, written(evidence.book), evidence)


@pytest.fixture
def outputs(book):
    return {one.name: one for one in written(book).outputs}


def field(copy, experiment, run):
    return json.loads(copy.trace(experiment).read_text())["runs"][run]


def change(copy, edit):
    """Change the calculator of the lesson on cost as plain YAML, and write it back."""
    file = copy.content / COST
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    edit(document["calculator"])
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def test_a_formula_on_a_run_is_what_the_runs_own_numbers_give(copy, outputs):
    found = checks(outputs["peak"], Evidence(copy.load()))
    whole = field(copy, "tiny_memory", "whole")
    copies = field(copy, "tiny_memory", "halves")["world_size"]
    assert [one.run for one in found] == ["tiny_memory.whole", "tiny_memory.halves"]
    assert found[0].by_formula.number == whole["model"]["bytes"] * copies
    assert found[0].measured.number == whole["ranks"][0]["memory"]["peak_bytes"]
    share = found[0].by_formula.number / found[0].measured.number - 1
    assert found[0].off.number == pytest.approx(share)


def _by_law(one):
    for each in one["inputs"][:2]:
        each["on_run"] = {"model_bytes": "run.model.bytes", "copies": "2 * run.world_size"}[
            each["name"]
        ]
    one["outputs"][0]["checked_on"][0] = "whole-peak"


def test_a_check_by_law_is_compared_with_what_the_law_observes(copy, outputs):
    (by_hand, _) = checks(outputs["peak"], Evidence(copy.load()))
    change(copy, _by_law)
    assert copy.errors() == []
    book = copy.load()
    (by_law, other) = checks(written(book).outputs[0], Evidence(book))
    assert (by_law.run, by_law.measured.number) == (by_hand.run, by_hand.measured.number)
    assert by_law.by_formula.number == by_hand.by_formula.number
    assert by_law.by_formula.formula.startswith("tiny_memory.whole.model.bytes * (2 *")
    assert other.run == "tiny_memory.halves"  # whose own `given` goes before `on_run`
