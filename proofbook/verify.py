"""One rank of a watched script: `torchrun --nproc-per-node 4 -m proofbook.verify train.py`."""

import runpy

runpy.run_module("proofbook.companions.verify", run_name="__main__", alter_sys=True)
