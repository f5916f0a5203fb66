"""`python -m runners list`: all experiments, or those that are named, each once."""

import pytest

from proofbook.generator.content.scaffold import CannotScaffoldError, new_experiment
from proofbook.runners.__main__ import main
from proofbook.runners.core.trace import machine
from proofbook.runners.system.book import MORE, ROOT, experiments_in
from tests.processes import python


def test_list_shows_the_experiments_that_are_named_and_no_others(capsys):
    main(["list", "ddp", "too_small", "ddp"])
    rows = [row for row in capsys.readouterr().out.splitlines() if not row.startswith(" ")]
    assert [row.split()[0] for row in rows[:-1]] == ["ddp", "too_small"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("QUESTION = 'Which?'\n", "broken.py: declares no RUNS"),
        ("\nRUNS = {\n", "broken.py:2: SyntaxError: '{' was never closed"),
        ("\nRUNS = {'a': wide}\n", "broken.py:2: NameError: name 'wide' is not defined"),
    ],
)
def test_a_broken_experiment_is_one_line_and_the_others_are_listed(
    tmp_path, monkeypatch, capsys, text, said
):
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.setenv(MORE, str(tmp_path))
    monkeypatch.setattr(machine, "TRACES", tmp_path / "traces")
    assert main(["list", "broken", "ddp"]) == 2
    rows = capsys.readouterr().out.splitlines()
    assert said in rows[1]
    assert rows[2].startswith("ddp ")
    assert main(["run", "--dry"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.builds
def test_no_declaration_loads_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    done = python("-m", "runners", "list", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


def test_an_experiment_has_one_file_and_its_name_is_taken():
    files = (ROOT / "runners" / "experiments").glob("[!_]*.py")
    names = [name for path in files for name in experiments_in(path)]
    assert sorted({*names}) == sorted(names)
    with pytest.raises(CannotScaffoldError, match=r"replicas\.py declares ddp already"):
        new_experiment(ROOT, ROOT / "content", "ddp")
