<<<<<<< HEAD
"""What a person can fix: errors that several rooms raise and one line of a command tells."""
=======
"""Errors that several rooms raise and one line of a command tells."""
>>>>>>> 4555f49514ed984c824b65488a8b388f678769d8

from __future__ import annotations


<<<<<<< HEAD
class FixableError(Exception):
    """What a person can fix: the message says how, and a command prints it as its last line."""

    exit_code = 2


class LaunchError(FixableError, RuntimeError):
    """The ranks could not be started at all."""


class AcceleratorError(FixableError, ValueError):
=======
class FixableError(ValueError):
    """What a person can fix: the message is one line, and the command exits with 2."""


class LaunchError(FixableError):
    """The ranks could not be started at all."""


class AcceleratorError(FixableError):
>>>>>>> 4555f49514ed984c824b65488a8b388f678769d8
    """There is an accelerator that torch cannot use; the message says what to do."""
