"""The pages of lessons, those of the chain of Deep, the summary of each topic, the cheat sheet."""

from collections.abc import Iterator
from functools import partial

from proofbook.generator.content.book import Book, Topic
from proofbook.generator.kinds.lessons.chain import chain
from proofbook.generator.kinds.lessons.words import DeepFile
from proofbook.generator.pages.sheets import Sheet
from proofbook.runners.system.kinds import page_kind

CHEAT_SHEET = "cheat-sheet"  # its path, without an ending


def sheets(book: Book) -> Iterator[Sheet]:
    """All of them."""
    for topic in book.topics:
        yield from _lessons(topic)
        if topic.file.key_laws:
            written, title = (
                f"content/topics/{topic.id}/topic.yml",
                f"Summary of “{topic.file.title}”",
            )
            path = f"topics/{topic.id}/summary.md"
            yield Sheet(path, "summary", title, topic.file.summary, written, topic=topic)
    if any(topic.file.key_laws for topic in book.topics):
        about = "The laws of all topics with their formulas and letters, to print on two sheets."
        yield Sheet(f"{CHEAT_SHEET}.md", "sheet", "Cheat sheet", about)


def _lessons(topic: Topic) -> Iterator[Sheet]:
    known = {mode: lesson for mode, lesson in topic.lessons.items() if page_kind(mode)}
    for mode, lesson in known.items():
        model, path = lesson.model, f"topics/{topic.id}/{mode}"
        sheet = partial(Sheet, source=lesson.source.file, topic=topic, mode=mode)
        yield sheet(f"{path}.md", mode, model.title, topic.file.modes[mode])
        for part in chain(model) if isinstance(model, DeepFile) else ():
            about = part.opening or part.title
            yield sheet(
                f"{path}-{part.id}.md", "chain", part.title, about, of=part.id, is_part=True
            )
