"""`proofbook COMMAND`: what the generator does for an author, and all that the runners do.

    proofbook new book DIR      a book of your own, green at once; also new experiment, new lesson
    proofbook check             every mistake, and what does not hold
    proofbook keys              every key of the YAML files, and every function of expressions
    mkdocs serve                the book, beside a browser that follows

The others:
"""

import sys

from proofbook.runners.system import stopping


def command() -> None:
    """Call the command of the first word: of `runners` if near a name there, else `generator`."""
    stopping.listen("stopped; run the same command again")  # before all else is loaded
    from importlib import metadata, util

    from proofbook.runners import __main__ as runners
    from proofbook.runners.system.errors import FixableError, nearest
    from proofbook.runners.system.kinds import kinds

    name = next(iter(sys.argv[1:]), "")
    if name in ("", "-h", "--help"):
        *_, others = runners.usage().partition("\n\n")
        # The program's name is shorter by eight characters, so what continues a line moves left.
        others = others.replace("python -m runners", "proofbook").replace(f"\n{'':8}", "\n")
        own = "".join(kind.book_usage for kind in kinds())
        ours = str(__doc__).replace("\n\nThe others", f"\n{own}\nThe others")
        sys.stdout.write(f"{ours}\n{others}")
        stopping.leave(0)
    if name == "--version":
        print("proofbook", metadata.version("proofbook"))
        stopping.leave(0)
    if name not in runners.commands() and not nearest(name, runners.commands()):
        if not util.find_spec("mkdocs"):
            lacks = "this Python lacks what builds books: pip install 'proofbook[book]'"
            print(lacks, file=sys.stderr)
            stopping.leave(FixableError.exit_code)
        from proofbook.generator.__main__ import main

        stopping.leave(main())
    runners.command()


if __name__ == "__main__":
    command()
