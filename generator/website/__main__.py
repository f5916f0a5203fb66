"""What `make` builds and serves of this clone's book: `python -m generator.website pages`.

    site [--short]           measure what this machine lacks, build the book, say what to open
    first                    the book of the reference machine, to open before anything is measured
    pages                    the book from the committed traces of the reference machine, strictly
    publish [--address URL]  the same for a web server in site/book, and a zip of it
    serve [--port 8000]      the book beside a browser that follows each edit

A book takes the place of another once it is whole. `site` builds none where nothing has changed.
Exit codes are those of `runners run` and of MkDocs; 2 also where the port is taken.
"""

import argparse
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from proofbook.generator.content.shelf import REFERENCE
from proofbook.runners.system.files import put_in_place, write_text

HOST = "127.0.0.1"
SITE = Path("site")
INDEX = SITE / "html" / "index.html"
LAST = "llms.txt"  # what a build writes last
STATE = INDEX.with_name(".state")  # of the files that the machine's book was built from
SOURCES = ("content", "generator", "runners", "companions", "mkdocs.yml", ".venv/.pages")
PAGES = SITE / "pages"
BOOK = SITE / "book"
DATES = "SOURCE_DATE_EPOCH"  # of what a build writes, as other tools know it
NO_ADDRESS = (
    "proofbook: without its address the book has no sitemap, canonical links or pictures of shared "
    "links; give it as in make publish SITE_URL=https://example.org/book/"
)
SURPRISED = 1  # the exit code of what went on to its end; a higher one stopped there
RED, PLAIN = "\033[31m", "\033[0m"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command in the folder of the clone; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m generator.website", description="The book.")
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    site = verbs.add_parser("site", help="measure what this machine lacks, and build the book")
    site.add_argument("--short", action="store_true", help="with the sizes of a try")
    first = verbs.add_parser("first", help="build it from the committed traces, whatever they say")
    pages = verbs.add_parser("pages", help="build the book from the committed traces, strictly")
    publish = verbs.add_parser("publish", help="build the book for a web server, and a zip of it")
    publish.add_argument("--address", default="", metavar="URL", help="where it will stand")
    serve = verbs.add_parser("serve", help="serve the book, and follow each edit")
    serve.add_argument("--port", type=int, default=8000)
    for verb, called in {site: _site, pages: _pages, publish: _publish, serve: _serve}.items():
        verb.set_defaults(command=called, option="--strict")
    first.set_defaults(command=_pages, option="--quiet")
    options = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def _site(options: argparse.Namespace) -> int:
    ran = _called(["runners", "run", *["--short"] * options.short])
    if ran > SURPRISED:
        return ran
    built, sources = 0, _state(*map(Path, SOURCES))
    before = STATE.read_text(encoding="utf-8") if STATE.exists() else ""
    if before != sources + _state(PAGES):
        print("Building the book with this machine's numbers")
        built = _built("--quiet", {"_PROOFBOOK_SURPRISES": "1"})
        if built > SURPRISED:
            return built
        if not built:  # else the next build says the same again
            write_text(STATE, sources + _state(PAGES))
        print("The book shows this machine's numbers; reload the pages that are open")
    print(f"Open {INDEX.resolve()}")
    if ran or built:
        said = "Not all is as declared: see the lines above; the pages show it in red."
        print(f"{RED}{said}{PLAIN}")
    return ran or built


def _pages(options: argparse.Namespace) -> int:
    built = _built(options.option, _committed() | {"_PROOFBOOK_NEW_RUNS": "true"})
    if not built:
        print(f"Open {INDEX.resolve()}")
    return built


def _built(option: str, settings: Mapping[str, str]) -> int:
    """Build a book, and put it where readers open it if it is whole; MkDocs' exit code, else 2."""
    beside = SITE / f"next-{os.getpid()}"
    try:
        built = _called(["mkdocs", "build", option, "--site-dir", str(beside)], settings)
        if (beside / LAST).exists():
            put_in_place(beside, INDEX.parent)
        else:  # stopped; MkDocs ends with 1 then, as where a run surprised
            built = max(built, SURPRISED + 1)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return built


def _state(*tops: Path) -> str:
    """A digest of names, times and sizes of files, none hidden, and of the machine to be shown."""
    paths = (path for top in tops for path in (top, *top.rglob("[!.]*")) if path.is_file())
    files = ((str(path), path.stat()) for path in paths if path.suffix != ".pyc")
    seen = sorted((name, found.st_mtime_ns, found.st_size) for name, found in files)
    return hashlib.sha256(repr([os.environ.get("PROOFBOOK_MACHINE"), seen]).encode()).hexdigest()


def _publish(options: argparse.Namespace) -> int:
    settings = _committed() | {"_PROOFBOOK_SITE_URL": options.address}
    if not os.environ.get(DATES) and (committed_at := _committed_at()):
        settings[DATES] = committed_at
    if not options.address:
        print(NO_ADDRESS, file=sys.stderr)
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
    command = [sys.executable, "-m", *module]
    with subprocess.Popen(command, env={**os.environ, **(settings or {})}) as running:
        signal.signal(signal.SIGINT, lambda *_: None)  # the terminal has sent it there as well
        signal.signal(signal.SIGTERM, lambda *_: running.terminate())
        code = running.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
