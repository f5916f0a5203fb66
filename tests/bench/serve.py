"""How long an author waits: from a saved edit to the page that shows it, under `mkdocs serve`.

An edit changes one sentence of a lesson. The client waits as a browser does, in the request that
MkDocs answers once a rebuild is done, and then fetches the page. Told against a build of the whole
book. The goal is under a second.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.ratio import Ratio, seconds_of
from tests.conftest import copy_of_the_book, mkdocs
from tests.processes import free_port

LESSON = "topics/large-models/deep"
NUM_EDITS = 5
PATIENCE = 300  # seconds for the first build
_EPOCH = re.compile(rb"livereload\((\d+), (\d+)\)")


@contextmanager
def serving(book: Path, *options: str) -> Iterator[str]:
    """MkDocs serving a book, as `make serve` does; gives its address."""
    port = free_port()
    log = (book / "serve.log").open("w")
    command = [sys.executable, "-m", "mkdocs", "serve", *options]
    process = subprocess.Popen(
        [*command, "--dev-addr", f"127.0.0.1:{port}"],
        cwd=book,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=log,
        stderr=log,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(process, f"{address}/{LESSON}.html", book / "serve.log")
        yield address
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def fetched(address: str, timeout: float = 60) -> bytes:
    """What an address answers."""
    with urllib.request.urlopen(address, timeout=timeout) as answer:
        content: bytes = answer.read()
        return content


def _wait_for(process: subprocess.Popen[bytes], page: str, log: Path) -> None:
    """Wait until the first build is served."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            fetched(page)
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"never served: {log.read_text(encoding='utf-8')[-2000:]}")


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
        with serving(book, "--dirty", "--no-strict") as address:
            words = [f"Edited{letter}" for letter in "abcdefgh"[:NUM_EDITS]]
            seconds = [edit_to_visible(book, address, word) for word in words]
    return [Ratio("an edit visible", "a whole build", seconds, [whole])]
