"""The runners' command; `proofbook` where the package was installed.

    python -m runners list [NAME …]            experiments, their runs, and what is measured here
    python -m runners run [NAME[.RUN] …]       measure what is missing or stale (--force: all);
                                               an interrupted one continues where it was
    python -m runners run [NAME …] --full      the heavier runs and experiments too
    python -m runners run [NAME …] --dry       what would run, how long, how much memory
    python -m runners try EXPERIMENT.RUN --set key=value […]
                                               one run with settings of your own, in seconds
    python -m runners reproduce EXPERIMENT.RUN.FIELD […]
                                               measure values of a page again: the page's, the new
                                               one, the tolerance, and "same" or "differs"
    python -m runners show NAME[.RUN]          its runs; of one run each value, and what to paste
    python -m runners show                     every value there is, for grep
    python -m runners compare A B              what two machines measured differently
    python -m runners machine                  this machine's folder in fifteen minutes, what is
                                               different there, and how to send it

Exit codes: 0 every run ended as declared, or everything is the same; 1 a surprise, a difference,
a simulation that failed, a plan that differs, or a run that could not be measured for want of the
machine; 2 a wrong call, or a run that this machine cannot do; 130 Ctrl-C; 143 SIGTERM.
"""

from proofbook.runners.system import stopping

if __name__ == "__main__":
    stopping.listen("stopped; nothing was begun")  # before all else is loaded

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from proofbook.runners.core.system.scratch import Scratch
from proofbook.runners.system import book
from proofbook.runners.system.errors import FixableError, unknown
from proofbook.runners.system.kinds import Kind, kinds

# The module of each command: `add_arguments` says what it takes, `main` returns the exit code. It
# is imported when the command is called, since most of them load torch.
COMMANDS = {
    "list": "proofbook.runners.commands.list_experiments",
    "run": "proofbook.runners.commands.run",
    "try": "proofbook.runners.commands.try_run",
    "reproduce": "proofbook.runners.commands.reproduce",
    "show": "proofbook.runners.commands.show",
    "compare": "proofbook.runners.commands.compare",
    "machine": "proofbook.runners.commands.machine",
}
PROGRAM = "proofbook" if Path(sys.argv[0]).stem == "proofbook" else "python -m runners"


def main(words: Sequence[str] | None = None) -> int:
    """Execute the command; what a person can fix is one line and exit code 2."""
    name, *others = [*(sys.argv[1:] if words is None else words)] or [""]
    book.enter_book(Path.cwd())
    try:
        if name in ("-h", "--help"):
            sys.stdout.write(usage())
            sys.stdout.flush()
            return 0
        return _executed(name, others)
    except KeyboardInterrupt as stopped:
        return stopping.report(stopped)
    except FixableError as error:
        head = "" if error.exit_code == FixableError.exit_code else "not measured: "
        print(f"{PROGRAM}: {head}{error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return 0
    except OSError as error:
        print(f"{PROGRAM}: {error}; nothing half-written is left", file=sys.stderr)
        return 2


def usage() -> str:
    """What `--help` prints."""
    own, exit_codes, rest = str(__doc__).partition("\nExit codes")
    return "".join([own, *(kind.usage for kind in kinds()), exit_codes, rest])


def commands() -> list[str]:
    """The names of all commands, companions' among them."""
    return [*COMMANDS, *(name for kind in kinds() for name in kind.commands)]


def _companion(name: str) -> Kind | None:
    """The companion whose command it is; None where it is the runners' own."""
    return next((kind for kind in kinds() if name in kind.commands), None)


def _executed(name: str, words: Sequence[str]) -> int:
    companion = _companion(name)
    if name not in commands():
        raise unknown("command", name, commands())
    if name in ("list", "run", "try", "reproduce", "machine") and book.needs_no_torch():
        os.environ.setdefault("PROOFBOOK_DEVICE", "cpu")  # torch alone finds an accelerator
    # `make pages` sets up without torch.
    elif (
        name not in ("compare", "show")
        and (companion is None or companion.needs_torch)
        and importlib.util.find_spec("torch") is None
    ):
        if not (book.ROOT / "pyproject.toml").is_file():
            raise FixableError(
                "there is no book in this folder, and ours needs torch: go to the folder of a book "
                "(`proofbook new book DIR` makes one), or pip install 'proofbook[verify]'"
            )
        raise FixableError(
            "this Python has no torch; run `make torch` once, and call .venv/bin/python"
        )
    with Scratch():  # torch's compiler keeps its files there
        if companion:
            module = companion.take(companion.commands[name])
        else:
            module = importlib.import_module(COMMANDS[name])
        description = (module.__doc__ or "").partition("\n")[0]
        parser = argparse.ArgumentParser(prog=f"{PROGRAM} {name}", description=description)
        module.add_arguments(parser)
        exit_code: int = module.main(parser.parse_args(words))
        return exit_code


def command() -> None:
    """What `proofbook` and `python -m runners` call."""
    sys.path.insert(0, "")  # as under `python -m`: `proofbook plan for mine:build`
    companion = _companion("".join(sys.argv[1:2]))
    kept = companion.stopped if companion else ""
    stopping.listen(f"stopped; {kept or 'what was measured before is kept'}")
    stopping.leave(main())


if __name__ == "__main__":
    command()
