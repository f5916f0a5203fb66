"""How long an author waits: from a saved edit to the page that shows it, under `mkdocs serve`.

An edit changes one sentence of a lesson. The client waits as a browser does, in the request that
MkDocs answers once a rebuild is done, and then fetches the page. Told against a build of the whole
book. The goal is under a second.
"""

import re
import tempfile
import time
from pathlib import Path

from tests.bench.ratio import Ratio, seconds_of
from tests.conftest import copy_of_the_book, fetched, mkdocs, serving

LESSON = "topics/large-models/deep"
NUM_EDITS = 5
_EPOCH = re.compile(rb"livereload\((\d+), (\d+)\)")


def edit_to_visible(book: Path, address: str, word: str) -> float:
    """Write a word into the lesson; seconds until a waiting page shows it."""
    page = f"{address}/{LESSON}.html"
    waiting = _EPOCH.search(fetched(page))
    assert waiting, "the page does not wait for rebuilds"
    source = book / "content" / f"{LESSON}.yml"
    text = source.read_text(encoding="utf-8")
    edited = re.sub(r"^(introduction: [|>]-?\n +)", rf"\g<1>{word} ", text, count=1, flags=re.M)
    assert edited != text
    source.write_text(edited, encoding="utf-8")
    begun = time.perf_counter()
    epoch, request = (part.decode() for part in waiting.groups())
    while word.encode() not in fetched(page):
        epoch = fetched(f"{address}/livereload/{epoch}/{request}").decode()
    return time.perf_counter() - begun


def ratios() -> list[Ratio]:
    """The wait of an author against a whole build; far below one."""
    with tempfile.TemporaryDirectory() as folder:
        book = copy_of_the_book(Path(folder) / "book")
        whole = seconds_of(lambda: mkdocs(book, "build"))
        with serving(book, f"{LESSON}.html") as (address, *_):
            words = [f"Edited{letter}" for letter in "abcdefgh"[:NUM_EDITS]]
            seconds = [edit_to_visible(book, address, word) for word in words]
    return [Ratio("an edit visible", "a whole build", seconds, [whole])]
