"""Makes our code believe that this is macOS, in a Python process and in those that it starts.

Python imports it at its start where this folder is on PYTHONPATH. What Linux alone offers is taken
away: `/proc` and `/sys`, affinity, a limit on the data segment, and `fork` from a process that has
loaded torch.
"""

import os
import pathlib
import platform
import resource
import sys

_system = platform.system


def _system_for_us():
    caller = sys._getframe(1).f_globals
    return "Darwin" if "/runners/" in caller.get("__file__", "") else _system()


platform.system = _system_for_us
if hasattr(os, "sched_getaffinity"):
    del os.sched_getaffinity

_open, _fork, _setrlimit = pathlib.Path.open, os.fork, resource.setrlimit


def _open_elsewhere(self, *arguments, **named):
    if str(self).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "no such file or directory", str(self))
    return _open(self, *arguments, **named)


def _fork_without_torch():
    if "torch" in sys.modules:
        sys.stderr.write("fork after torch\n")
        os.abort()
    return _fork()


def _no_data_limit(which, limits):
    if which == resource.RLIMIT_DATA:
        raise ValueError("current limit exceeds maximum limit")
    _setrlimit(which, limits)


pathlib.Path.open = _open_elsewhere  # type: ignore[method-assign,assignment]
os.fork = _fork_without_torch
resource.setrlimit = _no_data_limit  # type: ignore[assignment]
