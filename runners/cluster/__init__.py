"""Where the runs over several nodes were up to version 1.1. See `companions/cluster`."""

from proofbook.companions import cluster

__path__ = cluster.__path__
