"""The closed forms that expressions call by name: ours, or those of a book of one's own.

In: `experiments/_laws.py` of such a book, whose public functions calculate with `+ - * /`, so that
they also take values with a unit and symbols of a formula. Out: functions by name.
"""

import runpy
from collections.abc import Mapping
from functools import cache, lru_cache, wraps
from pathlib import Path
from traceback import extract_tb
from types import FunctionType

from proofbook.generator.values.expression import Function
from proofbook.generator.values.value import ExpressionError
from proofbook.runners.system.book import own_book
from proofbook.runners.system.errors import first_line
from proofbook.runners.system.kinds import kinds

_WAY_OUT = (
    "; a law calculates with + - * / alone: "
    "what needs more is a property of Settings, marked @closed_form"
)


def closed_forms() -> Mapping[str, Function]:
    """Functions by name: laws of an own book's `_laws.py` (none without it), else the project's.

    ExpressionError if the file cannot be executed.
    """
    own = own_book()
    path = own / "experiments" / "_laws.py" if own else None
    if path is None or not path.is_file():
        return {} if own else _ours()
    return _of(path, path.stat().st_mtime_ns)


@cache
def _ours() -> Mapping[str, Function]:
    """Those that kinds declare: of our book."""
    laws = (kind.take(kind.laws) for kind in kinds() if kind.laws)
    return {name: law for own in laws for name, law in own.items()}


@lru_cache(maxsize=8)
def _of(path: Path, _: int) -> Mapping[str, Function]:
    """The functions of a file, as it was at some time."""
    try:
        holds = runpy.run_path(str(path), run_name=path.stem)
    except (Exception, SystemExit) as error:  # noqa: BLE001 an author has left it unfinished
        raise _at_its_line(error, path) from None
    functions = (law for law in holds.values() if isinstance(law, FunctionType))
    own = (law for law in functions if law.__module__ == path.stem)
    return {law.__name__: _guarded(law, path) for law in own}


def _guarded(function: Function, path: Path) -> Function:
    """The same function, whose own errors are the author's."""

    @wraps(function)
    def called(*arguments: object) -> object:
        try:
            return function(*arguments)
        except (ExpressionError, ZeroDivisionError, OverflowError):
            raise  # of what it is called with
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever an author's raises
            raise _at_its_line(error, path, _WAY_OUT) from None

    return called


def _at_its_line(error: BaseException, path: Path, hint: str = "") -> ExpressionError:
    frames = extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else next(reversed(lines), "")
    message = f"experiments/{path.name}:{line}: {type(error).__name__}: {first_line(error)}"
    return ExpressionError(f"{message}{hint}")
