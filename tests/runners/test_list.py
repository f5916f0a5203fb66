"""`python -m runners list`: all experiments, or those that are named."""

from runners.__main__ import main


def test_list_shows_the_experiments_that_are_named_and_no_others(capsys):
    main(["list", "ddp", "too_small"])
    rows = [row for row in capsys.readouterr().out.splitlines() if not row.startswith(" ")]
    assert [row.split()[0] for row in rows[:-1]] == ["ddp", "too_small"]


def test_list_says_which_experiment_a_mistyped_name_may_mean(capsys):
    assert main(["list", "dpd"]) == 2
    told = capsys.readouterr()
    assert "no experiment 'dpd' (did you mean ddp?)" in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)
