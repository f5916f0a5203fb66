"""The files of `python -m generator export`: what is written, and what each format lacks.

In: a checked book, topics, and the path of each format's file. Out: the files, and lines that say
what stands in them and what does not.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from generator.content.book import Book, Topic
from generator.content.typesetting import plain
from generator.export import gift, qti
from generator.export.questions import Question, questions
from generator.printing.folio import Folio
from generator.values.evaluation import Evidence

_WRITE: dict[str, tuple[Callable[[Sequence[Question]], bytes], Mapping[str, str]]] = {
    "gift": (gift.written, gift.LACKS),
    "qti-1.2": (qti.written_1_2, qti.LACKS_1_2),
    "qti-2.1": (qti.written_2_1, qti.LACKS_2_1),
}


def refuse_existing(paths: Iterable[Path]) -> None:
    """Refuse to write over what somebody has.

    Raises:
        FileExistsError: something of this name is there.
    """
    for path in paths:
        if path.exists():
            raise FileExistsError(errno.EEXIST, "exists already; name another", str(path))


def write(evidence: Evidence, topics: Sequence[Topic], paths: Mapping[str, Path]) -> Iterator[str]:
    """Write the questions of some topics, a file for each format, and say what is in it.

    Raises:
        OSError: a file cannot be written.
    """
    found, is_open = questions(evidence, topics)
    for format_, path in paths.items():
        write_all, lacks = _WRITE.get(format_) or (_cards(evidence), {})
        kept = [one for one in found if one.kind not in lacks]
        content = write_all(kept)
        with path.open("xb") as file:
            file.write(content)
        yield f"{path}: {len(kept)} questions of {len({one.topic for one in kept})} topics"
        for kind, why in lacks.items():
            if left := [one.id for one in found if one.kind == kind]:
                yield f"  left out, since {why}: {', '.join(left)}"
        if format_ != "anki" and (hinted := sum(bool(one.hints) for one in kept)):
            yield f"  {hinted} of them without their hints, for which {format_} has no place"
    if is_open:
        yield f"in no file, since the runs leave open what is right: {', '.join(is_open)}"


def _cards(evidence: Evidence) -> Callable[[Sequence[Question]], bytes]:
    """Flash cards, which change where runs were recorded since."""
    from generator.export import anki

    book = evidence.book
    title = plain(Folio(evidence, evidence).line(book.home.title))
    return lambda kept: anki.written(kept, title, _newest(book))


def _newest(book: Book) -> float:
    recorded = [one.trace.recorded_at for one in book.traces.values()]
    return max(datetime.fromisoformat(one).timestamp() for one in recorded)
