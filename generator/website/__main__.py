"""What `make` builds and serves of this clone's book: `python -m generator.website pages`.

    site [--short]           measure what this machine lacks, build the book, say what to open
    pages                    the book from the committed traces of the reference machine, strictly
    publish [--address URL]  the same for a web server in site/book, and a zip of it
    serve [--port 8000]      the book beside a browser that follows each edit

Exit codes are those of `runners run` and of MkDocs; 2 where the port is taken.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from proofbook.generator.content.shelf import REFERENCE

HOST = "127.0.0.1"
SITE = Path("site")
INDEX = SITE / "html" / "index.html"
BOOK = SITE / "book"
DATES = "SOURCE_DATE_EPOCH"  # of what a build writes, as other tools know it
SURPRISED = 1  # the exit code of what went on to its end; a higher one stopped there
RED, PLAIN = "\033[31m", "\033[0m"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command in the folder of the clone; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m generator.website", description="The book.")
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    site = verbs.add_parser("site", help="measure what this machine lacks, and build the book")
    site.add_argument("--short", action="store_true", help="with the sizes of a try")
    pages = verbs.add_parser("pages", help="build the book from the committed traces, strictly")
    publish = verbs.add_parser("publish", help="build the book for a web server, and a zip of it")
    publish.add_argument("--address", default="", metavar="URL", help="where it will stand")
    serve = verbs.add_parser("serve", help="serve the book, and follow each edit")
    serve.add_argument("--port", type=int, default=8000)
    for verb, called in {site: _site, pages: _pages, publish: _publish, serve: _serve}.items():
        verb.set_defaults(command=called)
    options = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def _site(options: argparse.Namespace) -> int:
    ran = _called(["runners", "run", *["--short"] * options.short])
    if ran > SURPRISED:
        return ran
    built = _called(["mkdocs", "build", "--quiet"], {"_PROOFBOOK_SURPRISES": "1"})
    if built > SURPRISED:
        return built
    print(f"Open {INDEX.resolve()}")
    if ran or built:
        said = "Not all is as declared: see the lines above; the pages show it in red."
        print(f"{RED}{said}{PLAIN}")
    return ran or built


def _pages(_: argparse.Namespace) -> int:
    built = _called(["mkdocs", "build", "--strict"], _committed() | {"_PROOFBOOK_NEW_RUNS": "true"})
    if not built:
        print(f"Open {INDEX.resolve()}")
    return built


def _publish(options: argparse.Namespace) -> int:
    settings = _committed() | {"_PROOFBOOK_SITE_URL": options.address}
    if not os.environ.get(DATES) and (committed_at := _committed_at()):
        settings[DATES] = committed_at
    built = _called(["mkdocs", "build", "--strict", "--site-dir", str(BOOK)], settings)
    if not built:
        # What it imports, `serve` need not wait for.
        from proofbook.generator.website.publish import locked

        with locked(SITE / "pages"):  # or another build might empty the folder meanwhile
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
