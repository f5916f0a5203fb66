"""Code that pages show: the text of a file, or of one function or class of it.

In: the project's root and what a `Listing` names. Out: the text, or why there is none. Nothing is
shown that a run did not execute, so nothing outside the project is ever read.
"""

import ast
import re
import textwrap
import tokenize
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from io import StringIO
from pathlib import Path

from proofbook.generator.content.errors import nearest
from proofbook.generator.content.numerals import MEASURE
from proofbook.runners.system.kinds import Kind, kinds
from proofbook.runners.traces.programs import DECLARED

_Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Where a run finds what it executes: the programs of topics and sentences, those of companions, and
# the experiments.
_OF_BOOK = ["topics/*/code", "code", "retracted"]


def _folders(kinds: Iterable[Kind]) -> str:
    own = [folder for kind in kinds for folder in kind.folders]
    return "|".join(folder.replace("*", "[^/]+") for folder in [*_OF_BOOK, *own])


_OFFERED = re.compile(rf"content/(?:{_folders(kind for kind in kinds() if kind.downloads)})/.+")
_PLACES = re.compile(
    rf"content/(?:{_folders(kinds())})/.+\.py"
    r"|(?:runners/|companions/[^/]+/)?experiments/.+\.py"
)
WRONG_PLACE = (
    "no code that a run executes; a listing names a .py file of the topic's code/ or of "
    "the experiments/, by its path from the project's root"
)
# Lines that tell the runner how a program runs; where they stand between two empty lines, with one.
_FOR_THE_RUNNER = re.compile(rf"(^\n)?(?:{DECLARED.pattern}\n)+(?(1)\n?)", re.MULTILINE)


@lru_cache(maxsize=256)
def _definitions(text: str) -> dict[str, _Defined]:
    """The functions and classes of a file by name; of equal names, the outermost."""
    defined: dict[str, _Defined] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _Defined):
            defined.setdefault(node.name, node)
    return defined


def text(root: Path, path: str) -> str:
    """Text of the file `root / path`; ValueError if missing, or outside the folders of programs."""
    if not _PLACES.fullmatch(path) or ".." in path:
        raise ValueError(f"{path!r} is {WRONG_PLACE}")
    try:
        return (root / path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise ValueError(f"no file {path!r} in the project that is text") from None


def listed(root: Path, path: str, name: str | None) -> str:
    """Source text as pages show it: a file, or its function or class `name` with decorators.

    A program of the content is shown without what it tells the runner. ValueError if it is missing.
    """
    code = whole = text(root, path)
    if name is not None:
        try:
            defined = _definitions(whole)
        except SyntaxError as error:
            raise ValueError(f"{path}:{error.lineno}: not Python: {error.msg}") from None
        if name not in defined:
            raise ValueError(f"{path} defines no {name!r}{nearest(name, defined)}")
        node = defined[name]
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        code = textwrap.dedent("\n".join(whole.splitlines()[first - 1 : node.end_lineno]))
    if path.startswith("content/"):
        code = _FOR_THE_RUNNER.sub(r"\1", code + "\n")
    return code.strip("\n") + "\n"


def anonymized(root: Path, path: str, name: str | None) -> str:
    """The same text with `program.py` for the file's name, which may give a fault away."""
    return re.sub(rf"\b{re.escape(Path(path).name)}\b", "program.py", listed(root, path, name))


def download_path(path: str) -> str | None:
    """Path of a program's download below the site's root; None if it has none."""
    return f"programs/{path.rpartition('/')[2]}" if _OFFERED.fullmatch(path) else None


def why_not_listed(root: Path, path: str, name: str | None) -> str | None:
    """Message of the ValueError that `listed` raises for these arguments; None if it does not."""
    try:
        listed(root, path, name)
    except ValueError as error:
        return str(error)
    return None


def why_stated(root: Path, path: str, name: str | None) -> str | None:
    """Message on a quantity in a comment or docstring of a file, or of its function or class.

    No run checks these. A number without a unit is the program's own: `# 4 ranks`.
    """
    whole = text(root, path)
    part = _definitions(whole)[name] if name else None
    with suppress(SyntaxError, tokenize.TokenError):  # of a file that is no Python
        for token in tokenize.generate_tokens(StringIO(whole).readline):
            begins_line = token.type == tokenize.STRING and not token.line[: token.start[1]].strip()
            is_shown = part is None or part.lineno <= token.start[0] <= (part.end_lineno or 0)
            if is_shown and (begins_line or token.type == tokenize.COMMENT):
                for words in MEASURE.findall(token.string):
                    where = f"{path}:{token.start[0]}: a comment states {words!r}"
                    return f"{where}; print it on the page with {{{{ … }}}}"
    return None


def why_misplaced(text: str, line: str) -> str | None:
    """Message unless a line, without its indent, stands exactly once in a text; else None."""
    wanted, lines = line.strip(), [code_line.strip() for code_line in text.splitlines()]
    if num := lines.count(wanted):
        again = f"{wanted!r} stands {num} times in the listing; choose a line that stands once"
        return again if num > 1 else None
    return f"{wanted!r} does not stand in the listing{nearest(wanted, filter(None, lines))}"
