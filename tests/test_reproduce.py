"""Whether the book's numbers are true: a sample, measured again; and a number's own command."""

import json
import re
import shlex
from dataclasses import replace
from functools import cache

import pytest

from proofbook.generator.printing.sources import PYTHON
from proofbook.runners.__main__ import main
from proofbook.runners.commands import reproduce
from proofbook.runners.commands.reproduce import requested
from proofbook.runners.core.trace.fields import in_words, quantity, steps_of, value_at
from tests.clones import cloned, pasted
from tests.conftest import ROOT
from tests.popovers import popovers
from tests.recorded import write
from tests.sampled import REFERENCE, sample

pytestmark = pytest.mark.builds

KINDS = {
    "epochs.loss", "epochs.accuracy", "validation.loss", "prediction.values", "stages.values",
    "ranks.parameter_digest", "ranks.num_samples", "ranks.memory.peak_bytes",
    "ranks.memory.at_peak.activations_bytes", "ranks.collectives.bytes", "ranks.collectives.count",
}  # fmt: skip


@pytest.fixture(scope="module")
def shown(built_site):
    """Every popover of the book with a command, each command once."""
    return list({one.command: one for one in popovers(built_site) if one.command}.values())


@pytest.fixture(scope="module")
def wanted(shown):
    """What each command names in the reference machine's traces, each of which is read once."""
    read_once = cache(reproduce._of_page)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reproduce, "_of_page", lambda *of: replace(read_once(*of), paths={}))
        return {one.command: requested(shlex.split(one.command)[4:], REFERENCE) for one in shown}


def test_every_measured_number_has_a_command_and_nothing_given_or_cited_has(built_site):
    found = popovers(built_site)
    of_runs = [one for one in found if one.kind in ("measured", "simulated")]
    bare = [one for one in of_runs if not one.command]
    assert len(bare) < len(of_runs) / 100
    assert all(one.source.startswith("machine.") for one in bare)
    assert not [one for one in found if one.kind in ("given", "cited") and one.command]
    computed = [one for one in found if one.kind == "computed" and one.command]
    assert all(any(kind != "given" for _, kind in one.inputs) for one in computed)


def test_every_command_names_values_that_the_page_shows(shown, wanted):
    wrong = []
    for one in shown:
        values = [
            (value_at(of, steps), quantity(steps, of.quantities).unit)
            for experiment in wanted[one.command]
            for run, steps in experiment.paths.values()
            if steps and (of := experiment.trace.runs[run])
        ]
        printed = {in_words(value, unit) for value, unit in values}
        printed |= {str(len(value)) for value, _ in values if isinstance(value, list | dict)}
        if one.exactly and one.kind != "computed" and one.exactly not in printed:
            wrong.append((one.page, one.exactly, one.command))
    assert not wrong


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A fresh clone of the book."""
    return cloned(tmp_path_factory.mktemp("fresh") / "proofbook")


def _state(clone):
    """Everything in the clone's content, but the lock that a run holds and compiled programs."""
    return {
        str(path): path.stat().st_mtime_ns
        for path in (clone / "content").rglob("*")
        if path.is_file() and path.name != ".running" and path.suffix != ".pyc"
    }


def _blocks(printed):
    """What a command printed of each path."""
    blocks = re.split(r"\n(?=\S)", printed)
    return {block.splitlines()[0]: block for block in blocks if "\n  tolerance" in block}


def _one_more(clone, path):
    """Let the page's trace say one more at a path than the code gives; what it said."""
    experiment, run, *steps, last = steps_of(path)
    file = clone / "content/traces" / REFERENCE.name / f"{experiment}.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    holder = value_at(document["runs"][run], steps)
    holder[last] += 1
    write(file, document)
    return holder[last] - 1


@pytest.mark.ranks
def test_a_sample_of_all_kinds_is_measured_again_and_a_page_that_is_wrong_is_told(clone):
    paths = sample()
    wrong = next(path for path in paths if path.endswith("].num_samples"))
    measured = _one_more(clone, wrong)
    before = _state(clone)
    done = pasted(f"{PYTHON} reproduce {shlex.join(paths)}", clone)
    said = f"{done.stdout}{done.stderr}"
    assert done.returncode == 1, said
    blocks = _blocks(done.stdout)
    assert blocks.keys() == {*paths}, said
    assert [one for one, block in blocks.items() if block.endswith("  differs")] == [wrong], said
    assert f"page       {measured + 1:,} (" in blocks[wrong]
    assert f"here       {measured:,}\n" in blocks[wrong]
    assert _state(clone) == before
    assert {re.sub(r"\[[^]]+\]", "", path).split(".", 2)[2] for path in paths} >= KINDS


def test_nothing_at_the_gate_is_drawn_anew():
    gate = [path for path in ROOT.glob("tests/**/*.py") if "soak" not in path.parts]
    anew = re.compile(r"^import (?:secrets|uuid)|Random\(\)|\brandom\.[a-z]+\(", re.MULTILINE)
    assert not [path for path in gate if anew.search(path.read_text("utf-8"))]


def test_what_rounding_decides_on_another_processor_is_neither_same_nor_different(
    monkeypatch, capsys
):
    """Also on one of the same name with other caches."""
    (page,) = requested(["ddp.single.ranks[0].parameter_digest"], REFERENCE)
    run = page.trace.runs["single"]
    ranks = [run.ranks[0].model_copy(update={"parameter_digest": "0" * 12})]
    here = {"single": run.model_copy(update={"ranks": ranks})}
    monkeypatch.setattr(reproduce.machine, "caches", lambda: "16K Data")
    assert [*reproduce._compared(page, here)] == [None]
    said = capsys.readouterr().out
    assert "note: caches was " in said
    assert said.endswith("rounds some bit apart\n  not compared\n")


def test_a_run_with_other_settings_is_not_the_same():
    (page,) = requested(["ddp.single"], REFERENCE)
    run = page.trace.runs["single"]
    other = run.model_copy(update={"settings": {**run.settings, "batch_size": 50}})
    assert [*reproduce._compared(page, {"single": run})] == [True]
    assert [*reproduce._compared(page, {"single": other})] == [False]


@pytest.mark.parametrize("status", ["died", "failed"])
def test_a_death_is_the_same_however_it_reaches_the_other_rank(status):
    (page,) = requested(["hangs.lengths_differ"], REFERENCE)
    run = page.trace.runs["lengths_differ"]
    first, second = run.ranks
    ranks = [first, second.model_copy(update={"status": status})]
    here = {"lengths_differ": run.model_copy(update={"ranks": ranks})}
    assert [*reproduce._compared(page, here)] == [True]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("ddpp.single.seed", "no experiment 'ddpp' (did you mean ddp?)"),
        ("ddp.singel.seed", "no run of ddp 'singel' (did you mean single?)"),
        ("ddp.single.epochs[0].los", "no value at ddp.single.epochs[0].los"),
        ("ddp.single.epochs[0]", "ddp.single.epochs[0] holds several values; name one of its"),
        ("ddp.single.epochs[x].loss", "is not a plain path"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        requested([path], REFERENCE)


def test_a_wrong_call_is_one_line_and_code_two(capsys):
    assert main(["reproduce", "--from", "nobody", "ddp.single"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("python -m runners: no machine 'nobody'; there are: ")
    assert said.count("\n") == 1
