"""Let this machine have left out all experiments but some: `python -m tests.left_out NAME …`.

In a clone. Each of their runs is skipped with a reason, as on a machine that lacks what it needs.
The next `run` then measures the named ones alone.
"""

import sys
from collections.abc import Sequence

from proofbook.runners.core.declared.experiment import find, names
from proofbook.runners.core.measuring.gather import skipped
from proofbook.runners.core.measuring.launch import Place
from proofbook.runners.core.measuring.measure import code_of, folder
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import trace_of
from proofbook.runners.traces.files import write

REASON = "a session of tests measures few"


def leave_out_all_but(kept: Sequence[str]) -> None:
    """Write the traces of experiments of which this machine has measured nothing."""
    machine.keep_id()
    where, device = folder(), accelerator.kind()
    here = machine.describe()
    write(where / "machine.json", here)
    for name in (one for one in names() if one not in kept and not find(one).is_full):
        experiment = find(name)
        runs = {
            run: skipped(declaration, REASON, Place(device, "gloo"))
            for run, declaration in experiment.runs.items()
        }
        under, question = machine.circumstances(), experiment.question
        trace = trace_of(name, question, code_of(name), under, here.name, runs)
        write(where / f"{name}.json", trace)


if __name__ == "__main__":
    leave_out_all_but(sys.argv[1:])
