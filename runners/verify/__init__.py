"""Where `verify` was up to version 1.1. Its code lies in `companions/verify`."""

from proofbook.companions import verify

__path__ = verify.__path__
