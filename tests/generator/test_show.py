"""`python -m runners show`: what it prints is what an author can paste."""

import json

import pytest

from proofbook.runners.__main__ import main
from proofbook.runners.commands.show import lines, overview
from proofbook.runners.core.trace import machine
from tests.processes import python
from tests.recorded import write


def test_every_expression_that_show_lists_prints_when_it_is_pasted(book, evidence):
    refused, num_listed = {}, 0
    for shown in book.traces.values():
        for line in lines(shown.trace):
            expression = line.removeprefix("{{ ").partition(" }}  ")[0]
            found = evidence.evaluate(expression)
            problem = evidence.why_unprintable(found) or found.absent
            refused |= {expression: str(problem)} if problem else {}
            num_listed += 1
    assert refused == {}
    assert num_listed > 300


def test_an_experiment_is_a_line_a_run(book):
    for shown in book.traces.values():
        head, on, *rows = overview(shown.trace)
        assert head == f"{shown.trace.experiment}: {shown.trace.question}"
        assert shown.trace.machine in on
        told = [row.split()[0] for row in rows if row.startswith("  ")]
        assert told == list(shown.trace.runs)
        assert any("| grep" in row for row in rows)


def test_a_run_is_among_all_that_is_shown(capsys):
    assert main(["show", "ddp.single"]) == 0
    of_run = capsys.readouterr().out.splitlines()
    assert main(["show"]) == 0
    everything = capsys.readouterr().out.splitlines()
    assert of_run == [line for line in everything if line.startswith("{{ ddp.single.")]
    assert len({line.split(".")[0] for line in everything}) > 30


def test_the_trace_of_an_experiment_that_is_gone_is_shown_among_all(capsys, monkeypatch, tmp_path):
    document = json.loads(next(machine.TRACES.glob("reference-*/batch_split.json")).read_text())
    folder = tmp_path / "reference-here"
    folder.mkdir()
    write(folder / "gone.json", document | {"experiment": "gone"})
    monkeypatch.setattr(machine, "TRACES", tmp_path)
    assert main(["show"]) == 0
    assert capsys.readouterr().out.startswith("{{ gone.")


def test_what_is_not_there_is_one_line_and_exit_code_2(capsys):
    assert main(["show", "ddp.singel"]) == 2
    told = capsys.readouterr()
    assert "no run of ddp 'singel' (did you mean single?); there are:" in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


@pytest.mark.builds
def test_show_needs_no_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    done = python("-m", "runners", "show", "ddp", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) < 30
