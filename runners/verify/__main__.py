"""One rank of a watched script: `torchrun --nproc-per-node 4 -m runners.verify train.py`."""

import argparse
import os
import sys

from runners.system import processes
from runners.system.errors import FixableError

processes.end_with(os.getppid())  # before torch is loaded, which takes seconds
from runners.verify import command, report  # noqa: E402


def _main() -> int:
    parser = argparse.ArgumentParser(prog="runners.verify", description=command.__doc__)
    command.add_arguments(parser)
    try:
        return command.main(parser.parse_args())
    except FixableError as error:
        return report.say_wrong(error)


if __name__ == "__main__":
    sys.exit(_main())
