"""Watch a training script under torchrun, and say whether its update is that of one process.

    torchrun --nproc-per-node 4 -m runners.verify train.py --its arguments
    python -m runners verify --ranks 4 train.py --its arguments

`command` starts ranks, or is one (`rank`), in which the script runs unchanged; `cpu` maps a script
for GPUs.

Watching: `intercept` stands between the script and torch, whose inside `internals` reads. `watch`
records the first updates on every rank: the inputs of each outermost forward pass of a module that
trains (`roots`), the gradients that arrive at its outputs, the weights that the loss gives to
tokens or samples (`losses`), and gradients and parameters before and after each update (`records`).
The tool itself communicates nothing meanwhile: each rank writes files, by which a hang or a rank
that ended is noticed (`board`).

Replaying: once the script has ended, each rank replays its own forward passes in an unsharded clone
of the module (`replay`), with what ranks hold in parts put together (`records`; `against` for
divisions by hand). `rerun` runs the whole script as one process.

Comparing: rank 0 compares the sums with the gradients of the script (`compare`, `fit`), and with
them `inputs`, `losses` and `update`, each for one module. `report` names the usual cause of a
difference, prints the verdict, and keeps it.
"""
