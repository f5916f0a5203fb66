"""What `make` builds and serves of this clone's book: `python -m generator.website pages`.

    first                    the book of the reference machine, unless there is one to open
    site [--short]           measure what this machine lacks, and put its numbers into the book
    pages                    the book from the committed traces of the reference machine, strictly
    publish [--address URL]  the same for a web server in site/book, and a zip of it
    serve [--port 8000]      the book beside a browser that follows each edit

A book is built beside the one that a reader has open, and takes its place once it is whole. Where
nothing has changed since, `site` builds nothing.

Exit codes are those of `runners run` and of MkDocs; 2 where the port is taken.
"""

import argparse
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from proofbook.generator.content.shelf import REFERENCE
from proofbook.runners.system.files import put_in_place, states, write_text

HOST = "127.0.0.1"
SITE = Path("site")
INDEX = SITE / "html" / "index.html"
LAST = "llms.txt"  # what a build writes last
STATE = SITE / ".state"  # of all files that the machine's book was made of
BOOK = SITE / "book"
PAGES = SITE / "pages"
# What a build reads beside `content`, where this machine's traces are.
SOURCES = tuple(map(Path, ("generator", "runners", "mkdocs.yml", ".venv/.pages")))
BEGAN = "_PROOFBOOK_BEGAN"  # when make was called, in seconds since 1970
DATES = "SOURCE_DATE_EPOCH"  # of what a build writes, as other tools know it
SURPRISED = 1  # the exit code of what went on to its end; a higher one stopped there
RED, PLAIN = "\033[31m", "\033[0m"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command in the folder of the clone; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m generator.website", description="The book.")
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    first = verbs.add_parser("first", help="build the reference machine's book if there is none")
    site = verbs.add_parser("site", help="measure what this machine lacks, and build the book")
    site.add_argument("--short", action="store_true", help="with the sizes of a try")
    pages = verbs.add_parser("pages", help="build the book from the committed traces, strictly")
    publish = verbs.add_parser("publish", help="build the book for a web server, and a zip of it")
    publish.add_argument("--address", default="", metavar="URL", help="where it will stand")
    serve = verbs.add_parser("serve", help="serve the book, and follow each edit")
    serve.add_argument("--port", type=int, default=8000)
    commands = {first: _first, site: _site, pages: _pages, publish: _publish, serve: _serve}
    for verb, called in commands.items():
        verb.set_defaults(command=called)
    options = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def _first(_: argparse.Namespace) -> int:
    if INDEX.exists():
        print(
            f"Open {INDEX.resolve()}\nIt stays as it is until this command has measured and built."
        )
        return 0
    print("Building the book with the numbers of the reference machine")
    built = _built(_committed(), "--quiet")
    if not built:
        print(f"Open {INDEX.resolve()}")
        print(f"Ready {_seconds()}. This machine is measured next; Ctrl-C keeps this book.")
    return built


def _site(options: argparse.Namespace) -> int:
    ran = _called(["runners", "run", *["--short"] * options.short])
    if ran > SURPRISED:
        return ran
    built, sources, before = 0, _state(Path("content"), *SOURCES), ""
    if INDEX.exists() and STATE.exists():
        before = STATE.read_text(encoding="utf-8")
    if before != sources + _state(PAGES):
        STATE.unlink(missing_ok=True)
        print("Building the book with the numbers of this machine")
        built = _built({"_PROOFBOOK_SURPRISES": "1"}, "--quiet")
        if built > SURPRISED:
            return built
        if not built:  # else its warnings are printed again
            write_text(STATE, sources + _state(PAGES))
        print(f"Built {_seconds()}; reload the pages that you have open.")
    print(f"Open {INDEX.resolve()}")
    if ran or built:
        said = "Not all is as declared: see the lines above; the pages show it in red."
        print(f"{RED}{said}{PLAIN}")
    return ran or built


def _pages(_: argparse.Namespace) -> int:
    built = _built(_committed() | {"_PROOFBOOK_NEW_RUNS": "true"}, "--strict")
    if not built:
        print(f"Open {INDEX.resolve()}")
    return built


def _built(settings: Mapping[str, str], option: str) -> int:
    """Build a book beside the one that is open, and put it there if whole; MkDocs' exit code."""
    beside = SITE / f"next-{os.getpid()}"
    try:
        built = _called(["mkdocs", "build", option, "--site-dir", str(beside)], settings)
        if built <= SURPRISED and (beside / LAST).exists():
            put_in_place(beside, INDEX.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return built


def _state(*tops: Path) -> str:
    """A digest of names, times and sizes of all files there, and of the machine that is shown."""
    shown = os.environ.get("PROOFBOOK_MACHINE")
    return hashlib.sha256(repr([shown, *sorted(states(*tops))]).encode()).hexdigest()


def _seconds() -> str:
    """How long make has taken until now, in words."""
    began = float(os.environ.get(BEGAN) or time.time())
    return f"after {time.time() - began:.0f} s"


def _publish(options: argparse.Namespace) -> int:
    settings = _committed() | {"_PROOFBOOK_SITE_URL": options.address}
    if not os.environ.get(DATES) and (committed_at := _committed_at()):
        settings[DATES] = committed_at
    built = _called(["mkdocs", "build", "--strict", "--site-dir", str(BOOK)], settings)
    if not built:
        # What it imports, `serve` need not wait for.
        from proofbook.generator.website.publish import locked

        with locked(PAGES):  # or another build might empty the folder meanwhile
            return _called(["zipfile", "-c", str(SITE / "proofbook.zip"), str(BOOK)])
    return built


def _serve(options: argparse.Namespace) -> int:
    with socket.socket() as probe:  # MkDocs would build first, and then name no port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, options.port))
        except OSError:
            retry = f"make serve PORT={options.port + 1}"
            print(f"proofbook: port {options.port} is taken; try {retry}", file=sys.stderr)
            return 2
    address = f"{HOST}:{options.port}"
    return _called(["mkdocs", "serve", "--dirty", "--no-strict", "--dev-addr", address])


def _committed() -> dict[str, str]:
    """Settings of a build that shows the reference machine, and no traces but committed ones."""
    reference = next(Path("content/traces").glob(REFERENCE), Path())
    return {"PROOFBOOK_MACHINE": reference.name, "_PROOFBOOK_COMMITTED_ONLY": "true"}


def _committed_at() -> str:
    """When the current commit was made, in seconds since 1970; empty where there is none."""
    git = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def _called(module: Sequence[str], settings: Mapping[str, str] | None = None) -> int:
    """Run a module of Python with these variables beside; return its exit code, as a shell does.

    A signal that stops this command stops that one, which cleans up and says so itself.
    """
    command, stopped = [sys.executable, "-m", *module], list[int]()

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        if number == signal.SIGTERM:  # of SIGINT the terminal has told the other as well
            running.terminate()

    with subprocess.Popen(command, env={**os.environ, **(settings or {})}) as running:
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        code = running.wait()
    if stopped:  # MkDocs ends with 1 then, as where it built a book with surprises
        return 128 + stopped[0]
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
