"""The templates' environment, and how pages print words, names and numbers."""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup, escape

from proofbook.generator.printing.folio import breakable, escaped_heading, interface_words
from proofbook.generator.printing.markdown import in_lines, plain, unlinked, whole_words
from proofbook.generator.printing.sources import moment
from proofbook.runners.core.trace.records import software
from proofbook.runners.system.kinds import kinds

TEMPLATES = Path(__file__).parent / "templates"
_CODE = re.compile(r"`([^`]+)`")
_COMPUTED = "computed from the words, questions and code of the page"


@cache
def environment() -> Environment:
    """The Jinja environment of the templates: autoescaped, strict, with filters and `ui`."""
    own = {kind.folder.name: FileSystemLoader(kind.folder) for kind in kinds()}
    made = Environment(
        loader=ChoiceLoader([FileSystemLoader(TEMPLATES), PrefixLoader(own)]),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "plain": plain, "breakable": breakable, "moment": moment, "with_code": with_code,
        "unbroken": unbroken, "counted": counted, "minutes": minutes_words, "typed": typed,
        "unlinked": unlinked, "whole_words": whole_words, "in_lines": in_lines,
        "escaped_heading": escaped_heading, "software": software,
    }  # fmt: skip
    made.globals["ui"] = interface_words()
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return made


@cache
def macros(under: str = "elements/") -> dict[str, Callable[..., Markup]]:
    """The macros of the templates under a path, by name without its underscores.

    Of all elements by default, also those that kinds and companions bring.
    """
    names = environment().list_templates(
        filter_func=lambda name: (
            name.startswith(under)
            or (under == "elements/" and name.endswith(".j2") and name.count("/") == 1)
        )
    )
    modules = (environment().get_template(name).module for name in names)
    return {
        name.replace("_", ""): macro for module in modules for name, macro in vars(module).items()
    }


def reread() -> None:
    """Read ui.yml and the templates anew when they are next needed."""
    for read in (interface_words, environment, macros):
        read.cache_clear()


def label(text: object, title: str = "") -> Markup:
    """Words or a number without provenance, with a tooltip if a title is given."""
    told = Markup(' title="{}"').format(title) if title else ""
    return Markup('<span class="pb-label"{}>{}</span>').format(told, text)


def counted(number: int | str) -> Markup:
    """A number that the generator counted, with a tooltip that says so."""
    return label(number, interface_words()["counted"])


def minutes_words(number: int, word: str = "") -> Markup:
    """Reading minutes, with a tooltip that says where they are from."""
    return label(number, _COMPUTED) + Markup("&nbsp;") + (word or "minute" + "s" * (number != 1))


def unbroken(name: str) -> Markup:
    """A name in which no line ends, at none of its hyphens."""
    return Markup('<span class="pb-keep">{}</span>').format(name)


def typed(number: float, digits: int = 6) -> str:
    """A number as a field holds it: no more digits than tell it apart, and no exponent."""
    if number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    return format(Decimal(f"{number:.{digits}g}"), "f")


def with_code(reason: str) -> Markup:
    """A reason why a run was skipped, with its backticks turned into code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(reason))))
