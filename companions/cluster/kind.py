"""The same experiments over several nodes, which torchrun starts: `-m runners.cluster`."""

from proofbook.runners.system.kinds import Kind

KIND = Kind()
