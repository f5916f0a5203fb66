"""Watch a training script under torchrun, and say whether its update is that of one process.

    torchrun --nproc-per-node 4 -m runners.verify train.py --its arguments
    python -m runners verify --ranks 4 train.py --its arguments

`command` starts ranks, or is one (`rank`), in which the script runs unchanged (`script`); `cpu`
maps a script that is written for GPUs.

Watching: `intercept` stands between the script and torch; `watch` records the first updates on
every rank: the inputs of each outermost forward pass of a module that trains (`roots`), the
gradients that arrive at its outputs (`graph`), the weights that the loss gives to tokens or samples
(`losses`), what the script itself sends (`sends`, `identity`), and gradients and parameters before
and after each update (`records`). The tool itself communicates nothing meanwhile: each rank writes
files (`exchange`). `hangs` ends a script that hangs.

Replaying: once the script has ended, each rank replays its own forward passes (`replay`) in an
unsharded clone of the module (`clone`), with what ranks hold in parts put together (`layout`,
`against` for divisions by hand). `rerun` runs the whole script as one process.

Comparing: rank 0 compares the sums with the gradients of the script (`compare`, `sums`), and with
them `inputs`, `weights`, `clipping`, `stepping` and `tied_weights`, each for one module (`case`).
`explain` and `causes` name the usual cause of a difference; `report` prints the `verdict`, and
`keep` keeps it as a `trace`.
"""
