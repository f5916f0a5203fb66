"""One rank of a watched script: `torchrun --nproc-per-node 4 -m runners.verify train.py`."""

import argparse
import sys

from runners.system.errors import FixableError
from runners.verify import command


def _main() -> int:
    parser = argparse.ArgumentParser(prog="runners.verify", description=command.__doc__)
    command.add_arguments(parser)
    try:
        return command.main(parser.parse_args())
    except FixableError as error:
        return command.said_wrong(error)


if __name__ == "__main__":
    sys.exit(_main())
