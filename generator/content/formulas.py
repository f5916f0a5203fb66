"""Formulas: the LaTeX between dollars → MathML, which carries it for those who copy it.

In: LaTeX in which a private-use character stands for each expression. Out: MathML with the same
characters, or what is wrong with a formula, each at a character. A formula says a law: a number in
it is a coefficient, an index or an exponent, and what was measured is an expression.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from math_core import LatexError, LatexToMathML

from proofbook.generator.content.numerals import QUANTITY, SPELLED, blank, numerals

_TO_MATHML = LatexToMathML(annotation=True, fancy_error=False)
_FUNCTION = re.compile(r"<mi>([a-z]{2,})</mi>")  # as log, whose letters are no factors
_NAMES = ("<mi>", '<mi mathvariant="normal">')
_ALIGNED = ' style="text-align: '
_NOT_OURS = (" style=", " id=", " href=")
_WORDS = re.compile(r"\\(?:text|math[a-z]+|operatorname)\s*\{([^{}]*)\}")
# What LaTeX reads as no letter, also in its text.
_SPECIAL = str.maketrans({sign: f"\\{sign}" for sign in "%#&_$"})
_NUMBER = re.compile(r"\d+(?:(?:\.|\{,\}|\\[,;:!]|~)\d+)*|[¼-¾⅐-⅞²³¹⁰-₉]")
_RELATED = re.compile(
    r"\\(?:approx|equiv|geq?|gt|gg|leq?|lt|ll|neq?|propto|sim|to)(?![a-zA-Z])|[=<>≈≡≤≥≠&]|\\\\"
)
_LAYOUT = re.compile(
    r"\\(?:[dt]?frac|sqrt|left|right|[cl]?dots?|times|pm|q?quad|text|math[a-z]+|operatorname|"
    r"begin\{[a-z]+\}|end\{[a-z]+\})(?![a-zA-Z])|\\[,;:! ]|[\\{}()\[\]|~\s]"
)
LARGEST = 2  # digits of a number
PRINT = "a formula says a law, so print a number with {{ … }}"


@lru_cache(maxsize=4096)
def mathml(latex: str, *, is_block: bool) -> str:
    """The MathML of LaTeX; LatexError if invalid, or with colours, lengths or labels of equations.

    A private-use character stands for each expression; a block is a line of its own. LatexError
    says `12: what is wrong`, from the character 12 on.
    """
    made = _TO_MATHML.convert_with_local_state(latex, displaystyle=is_block)
    made = _FUNCTION.sub(r"<mtext>\1</mtext>", made)
    begins, *cells = made.split(_ALIGNED)
    for cell in cells:
        style, _, rest = cell.partition('"')
        begins += f' class="pb-{style.partition(";")[0]}"{rest}'
    if any(attribute in begins for attribute in _NOT_OURS):
        raise LatexError("0: colours, lengths, numbers and labels of equations are not used here")
    for name, value in product(_NAMES, values(latex)):
        begins = begins.replace(f"{name}{value}</mi>", f"<mn>{value}</mn>")
    return begins


def values(latex: str) -> list[str]:
    """The characters of LaTeX that stand for expressions."""
    return [char for char in latex if "\ue000" <= char <= "\uefff"]


def as_latex(printed: str) -> str:
    """Escape an expression's output for LaTeX, as text unless it is a number."""
    text = printed.translate(_SPECIAL)
    return text if text.replace(".", "").isdigit() else rf"\text{{{text}}}"


def faults(latex: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, message) per mistake in LaTeX: its syntax; bare numerals, else quantities."""
    try:
        mathml(latex, is_block=True)
    except LatexError as error:
        at, _, message = str(error).partition(": ")
        yield int(at), f"no LaTeX: {message.rstrip('.')}"
    typed = list(_numerals(latex))
    yield from typed or _stated(latex)


def _numerals(latex: str) -> Iterator[tuple[int, str]]:
    """Numbers that are no coefficient, index or exponent: in words, broken or long, in a sign."""
    for words in _WORDS.finditer(latex):
        spelled = ((word.start(), word[0]) for word in SPELLED.finditer(words[1]))
        for at, word in (*numerals(words[1]), *spelled):
            yield words.start(1) + at, f"bare numeral {word!r}; {PRINT}"
    for number in _NUMBER.finditer(_WORDS.sub(blank, latex)):
        if not (number[0].isdigit() and number[0].isascii() and len(number[0]) <= LARGEST):
            yield number.start(), f"bare numeral {number[0]!r}; {PRINT}"


def _stated(latex: str) -> Iterator[tuple[int, str]]:
    """The sides of a formula that are but a number, perhaps with its unit; zero and one are not."""
    begins = 0
    for ends in (*(relation.span() for relation in _RELATED.finditer(latex)), (len(latex), 0)):
        side = latex[begins : ends[0]]
        bare = _LAYOUT.sub("", side)
        has_digit = any(map(str.isnumeric, bare))
        is_number = has_digit and not (values(bare) or any(map(str.isalpha, bare)))
        # 2 s may be twice a variable; 2 and an upright s, or 42 s, is a time.
        has_unit = QUANTITY.fullmatch(bare) and (_WORDS.search(side) or bare[1:2].isdigit())
        if has_unit or (is_number and bare not in ("0", "1", "-1")):
            yield begins + len(side) - len(side.lstrip()), f"quantity '{side.strip()}'; {PRINT}"
        begins = ends[1]
