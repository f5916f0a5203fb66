"""`python -m runners list`: all experiments, or those that are named, each once."""

from runners.__main__ import main


def test_list_shows_the_experiments_that_are_named_and_no_others(capsys):
    main(["list", "ddp", "too_small", "ddp"])
    rows = [row for row in capsys.readouterr().out.splitlines() if not row.startswith(" ")]
    assert [row.split()[0] for row in rows[:-1]] == ["ddp", "too_small"]
