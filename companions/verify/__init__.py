"""Watch a training script under torchrun, and say whether its update is that of one process.

    torchrun --nproc-per-node 4 -m proofbook.verify train.py --its arguments
    python -m runners verify --ranks 4 train.py --its arguments

`command` starts ranks, or is one (`rank`), in which the script runs unchanged; `cpu` maps a script
for GPUs. The way is record, replay or rerun, compare, cause, report:

- Record: `intercept` replaces functions of torch, whose inside `internals` reads, and notifies a
  `watch`. It records the first updates on every rank: the inputs of each outermost forward pass of
  a module that trains (`roots`), the gradients of its outputs, the weights that the loss gives to
  tokens or samples (`losses`), and gradients and parameters before and after each update
  (`records`). Nothing of this communicates: each rank writes files, by which a hang or a rank that
  ended is noticed (`board`).
- Replay: once the script has ended, each rank replays its own forward passes in an unsharded clone
  of the module (`replay`), with tensors assembled from the parts of ranks (`records`; `against` for
  divisions by hand). `rerun` runs the whole script as one process.
- Compare: rank 0 compares the replays with the script (`compare`, `fit`), and with them `inputs`,
  `losses` and `update`, each for one module.
- Cause and report: `causes.yml` names the usual cause of a difference; `report` prints the verdict,
  and keeps it.
"""
