"""What a person can fix: errors that several rooms raise and one line of a command tells."""

from __future__ import annotations


class FixableError(Exception):
    """What a person can fix: the message says how, and a command prints it as its last line."""

    exit_code = 2


class LaunchError(FixableError, RuntimeError):
    """The ranks could not be started at all."""


class AcceleratorError(FixableError, ValueError):
    """There is an accelerator that torch cannot use; the message says what to do."""
