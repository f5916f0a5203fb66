"""Why ranks cannot run here: errors that several rooms raise and one line of a command tells."""

from __future__ import annotations


class LaunchError(RuntimeError):
    """The ranks could not be started at all."""


class AcceleratorError(ValueError):
    """There is an accelerator that torch cannot use; the message says what to do."""
