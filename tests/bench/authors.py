"""How long an author waits: for a command after each edit, and for the page that shows it.

Of commands, seconds are those of the processor, which other work on the machine turns least. An
edit changes one sentence of a lesson. The client waits as a browser does, in the request that
MkDocs answers once a rebuild is done, and then fetches the page. The goal is under a second.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.ratio import Ratio, seconds_of
from tests.conftest import copy_of_the_book, fetched, mkdocs, serving
from tests.processes import ROOT
from tests.sampled import REFERENCE

TIMES = 7
PACKAGES = ("-c", "import pydantic, jinja2, yaml")
COMMANDS = {"runners list": ("-m", "runners", "list"), "check": ("-m", "generator", "check")}
LESSON = "topics/large-models/deep"
NUM_EDITS = 5
_EPOCH = re.compile(rb"livereload\((\d+), (\d+)\)")


def commands() -> Iterator[Ratio]:
    """`list`, and `check` of the reference machine's book, against what both have to import."""
    words = {"packages": PACKAGES, **COMMANDS}
    rounds = [{name: _seconds(one) for name, one in words.items()} for _ in range(TIMES)]
    seconds = {name: [one[name] for one in rounds] for name in words}
    for name in COMMANDS:
        yield Ratio(name, "packages", seconds[name], seconds["packages"])


def _seconds(words: Sequence[str]) -> float:
    """Seconds of the processor that a call of Python takes."""
    environment = os.environ | {"PROOFBOOK_MACHINE": REFERENCE.name}
    before = os.times()
    subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])  # of children


def serve() -> Iterator[Ratio]:
    """The wait of an author against a whole build; far below one."""
    with tempfile.TemporaryDirectory() as folder:
        book = copy_of_the_book(Path(folder) / "book")
        whole = seconds_of(lambda: mkdocs(book, "build"))
        with serving(book, f"{LESSON}.html") as (address, *_):
            words = [f"Edited{letter}" for letter in "abcdefgh"[:NUM_EDITS]]
            seconds = [_edit_to_visible(book, address, word) for word in words]
    yield Ratio("an edit visible", "a whole build", seconds, [whole])


def _edit_to_visible(book: Path, address: str, word: str) -> float:
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
