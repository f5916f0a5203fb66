"""One rank of a watched script: `torchrun --nproc-per-node 4 -m proofbook.verify train.py`."""

import signal

if __name__ == "__main__":
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while this loads: no traceback

import argparse
import os
import sys

from proofbook.runners.core.system import processes
from proofbook.runners.system.errors import FixableError

processes.end_with(os.getppid())  # before torch is loaded, which takes seconds
from proofbook.companions.verify import command, rank, report  # noqa: E402, F401 loads torch


def _main() -> int:
    parser = argparse.ArgumentParser(prog="runners.verify", description=command.__doc__)
    command.add_arguments(parser)
    try:
        return command.main(parser.parse_args())
    except FixableError as error:
        return report.say_wrong_call(error)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, handler)  # as the script expects
    sys.exit(_main())
