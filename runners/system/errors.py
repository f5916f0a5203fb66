"""Errors that several rooms raise and one line of a command tells."""

import difflib
from collections.abc import Iterable

MOST_CHARACTERS = 160  # of a message that is not ours


class FixableError(ValueError):
    """What a person can fix: the message is one line, and the command exits with 2."""

    exit_code = 2


class LaunchError(FixableError):
    """The ranks could not be started at all."""


def first_line(error: BaseException) -> str:
    """What an error that is not ours says, without all that may follow."""
    return (str(error).strip().splitlines() or [""])[0][:MOST_CHARACTERS]


def near(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known word that another was probably meant to be, whatever its case and its hyphens."""
    word, plain = _plain(word), {_plain(one): one for one in sorted(known, reverse=True)}
    close = [one for one in plain if sorted(one) == sorted(word)]  # letters in another order
    close = close or difflib.get_close_matches(word, plain, n=1, cutoff=likeness)
    return plain[close[0]] if close else None


def _plain(word: str) -> str:
    return word.casefold().replace("-", "_")


def nearest(word: str, known: Iterable[str]) -> str:
    """What a mistyped name was probably meant to be, in parentheses; nothing where none is near."""
    close = near(word, known)
    return f" (did you mean {close}?)" if close else ""


def unknown(what: str, word: str, known: Iterable[str]) -> FixableError:
    """The error of a name that stands for nothing: what was probably meant, and all there is."""
    there_are = ", ".join(known) or "none yet"
    return FixableError(f"no {what} {word!r}{nearest(word, known)}; there are: {there_are}")
