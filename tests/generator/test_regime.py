"""The regime of a claim, and times of ranks that took turns: shown wherever they stand."""

import re
from pathlib import Path

import pytest

from proofbook.generator.content.claim import ClaimFile
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.regime import line, optimizer_of
from proofbook.runners.system.book import experiment_files, experiments_in

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
