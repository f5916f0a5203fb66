"""Errors that several rooms raise and one line of a command tells."""

from __future__ import annotations


class FixableError(ValueError):
    """What a person can fix: the message is one line, and the command exits with 2."""

    exit_code = 2


class LaunchError(FixableError):
    """The ranks could not be started at all."""
