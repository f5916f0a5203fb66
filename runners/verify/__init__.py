"""Watch a training script under torchrun, and say whether its update is that of one process.

    torchrun --nproc-per-node 4 -m runners.verify train.py --its arguments
    python -m runners verify --ranks 4 train.py --its arguments

The script runs unchanged. `intercept` stands between it and torch; `watch` records the first
updates on every rank: the inputs of each outermost forward pass of a module that trains, the
gradients that arrive at its outputs, the weights that the loss gives to tokens or samples
(`losses`), and gradients and parameters before and after each update. The tool itself communicates
nothing meanwhile: each rank writes files (`exchange`). When the script has ended, each rank replays
its own forward passes in an unsharded clone of the module in which nothing communicates (`replay`),
and rank 0 compares the sums with the gradients of the script (`compare`, with `inputs`, `weights`,
`clipping` and `stepping`), names the usual cause of each difference (`explain`, `causes`) and
prints a report (`report`). `hangs` ends a script that hangs; `against` reads divisions by hand;
`identity` knows an error of torch's own.
"""
