"""The templates' environment, and how they print words."""

import re
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from generator.pages.view import counted
from generator.printing.folio import breakable, interface_words
from generator.printing.markdown import plain, unlinked
from generator.printing.sources import moment
from runners.core.trace.records import software

TEMPLATES = Path(__file__).parent / "templates"
_CODE = re.compile(r"`([^`]+)`")


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The Jinja environment of the templates: autoescaped, strict, with filters and `views`."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "plain": plain, "breakable": breakable, "moment": moment, "with_code": with_code,
        "unbroken": unbroken, "counted": counted,
        "unlinked": unlinked, "command_words": command_words, "software": software,
    }  # fmt: skip
    made.globals["ui"] = interface_words()
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return made


def unbroken(name: str) -> Markup:
    """A name in which no line ends, at none of its hyphens."""
    return Markup('<span class="pb-keep">{}</span>').format(name)


def command_words(command: str) -> Markup:
    """A command whose lines end between words, and not at a hyphen inside an option."""
    words = (unbroken(word) if word.startswith("-") else word for word in command.split())
    return Markup(" ").join(words)


def with_code(reason: str) -> Markup:
    """A reason why a run was skipped, with its backticks turned into code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(reason))))
