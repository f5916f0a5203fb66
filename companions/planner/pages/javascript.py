"""Functions of Python as JavaScript, so that a page computes with the law that Python has.

In: functions and classes that calculate with numbers, words, lists and records. Out: a script with
these and with all that they call, under the same names; `assets/python.js` has what Python
itself brings. A ValueError names the line of a construct that has no counterpart.
"""

import ast
import inspect
import json
import string
import textwrap
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from pydantic import BaseModel

_OURS = "proofbook."
_RENAMED = {"startswith": "startsWith", "endswith": "endsWith", "index": "indexOf"}
# What becomes of a node, by its class: of each part its own JavaScript, of a sign its name.
_SHAPES = {
    "Assert": "", "Pass": "", "Expr": "{value};", "Return": "return {value};",
    "Raise": "throw {exc};", "Assign": "{targets} = {value};", "AnnAssign": "{target} = {value};",
    "AugAssign": "{target} = py.{op}({target}, {value});",
    "If": "if (py.is({test})) {{ {body} }} else {{ {orelse} }}",
    "For": "for (const {target} of py.list({iter})) {{ {body} }}",
    "Match": "{{ const subject = {subject}; {cases} }}",
    "match_case": "if (py.Eq(subject, {pattern})) {{ {body} }}", "MatchValue": "{value}",
    "BinOp": "py.{op}({left}, {right})", "UnaryOp": "py.{op}({operand})",
    "BoolOp": "py.{op}({later})", "IfExp": "(py.is({test}) ? {body} : {orelse})",
    "Lambda": "(({args}) => {body})", "Subscript": "py.at({value}, {slice})",
    "Slice": "py.slice({lower}, {upper}, {step})", "Tuple": "[{elts}]", "List": "[{elts}]",
    "Set": "new Set([{elts}])", "Starred": "...py.list({value})", "ListComp": "{each}",
    "GeneratorExp": "{each}", "SetComp": "new Set({each})", "JoinedStr": "[{values}].join('')",
    "FormattedValue": "{value}", "NamedExpr": "({target} = {value})", "Yield": "yield {value}",
    "YieldFrom": "yield* {value}",
}  # fmt: skip


def script_of(name: str, roots: Iterable[Any]) -> str:
    """A script in which the object `name` has the roots, each by its own name; methods too."""
    return _Script().text(name, list(roots))


class _Script:
    """What is translated so far; a class has those methods alone that something calls."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}  # in the script: two modules may have one name
        self.parts: list[str] = []  # constants and functions
        self.classes: dict[str, type] = {}
        self.attributes = {"__init__"}

    def text(self, name: str, roots: Sequence[Any]) -> str:
        """The whole script."""
        self.attributes |= {root.__name__ for root in roots if "." in root.__qualname__}
        own = [root for root in roots if "." not in root.__qualname__]
        given = ", ".join(f"{root.__name__}: {self.take(root.__name__, root)}" for root in own)
        methods: dict[tuple[str, str], str] = {}
        # What a method calls may be a method of a class that was done before.
        while lacking := [key for key in self._called() if key not in methods]:
            methods |= {key: self._method(*key) for key in lacking}
        parts = [f"{name} = (() => {{ const {{ py }} = proofbook;"]
        for of, known in self.classes.items():
            texts = (text for (owner, _), text in methods.items() if owner == of)
            usual = f"static usual = {_usual(known)};"
            parts += [f"class {of} extends py.Record {{", usual, *texts, "}"]
        return "\n".join([*parts, *self.parts, f"return {{ {given} }};", "})();\n"])

    def take(self, name: str, known: object) -> str:
        """The name of a function, a class or a constant in the script, which then has it."""
        if callable(known) and not known.__module__.startswith(_OURS):
            return f"py.{name}"
        key = known if callable(known) else (name, json.dumps(known))
        if key in self.names:
            return self.names[key]
        own = self.names[key] = f"{name}_{len(self.names)}"
        if inspect.isclass(known):
            self.classes[own] = known
        elif inspect.isfunction(known):
            self.parts.append(_Function(self, known).text(f"function {own}"))
        else:
            self.parts.append(f"const {own} = {json.dumps(known)};")
        return own

    def _called(self) -> list[tuple[str, str]]:
        """Each class, and each of its methods that something may call."""
        every = ((of, name) for of, known in self.classes.items() for name in vars(known))
        return [(of, name) for of, name in every if name in self.attributes]

    def _method(self, of: str, name: str) -> str:
        member = vars(self.classes[of])[name]
        function = getattr(member, "fget", None) or getattr(member, "func", member)
        if not inspect.isfunction(function) or not function.__module__.startswith(_OURS):
            return ""  # a field, or what pydantic makes
        return _Function(self, function).text(name if function is member else f"get {name}")


def _usual(of: type) -> str:
    """The fields of a record that it need not be given."""
    fields = of.model_fields.items() if issubclass(of, BaseModel) else ()
    usual = {
        name: field.get_default(call_default_factory=True)
        for name, field in fields
        if not field.is_required()
    }
    return json.dumps(usual, default=BaseModel.model_dump)


class _Function:
    """A function, node by node."""

    def __init__(self, script: _Script, function: FunctionType) -> None:
        self._script, self._globals = script, function.__globals__
        lines, first = inspect.getsourcelines(function)
        self._place = function.__code__.co_filename, first - 1
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
        assert isinstance(tree, ast.FunctionDef)
        self._tree, nodes = tree, [*ast.walk(tree)]
        self._given = {node.arg for node in nodes if isinstance(node, ast.arg)}
        names = (node for node in nodes if isinstance(node, ast.Name))
        self._stored = {node.id: 0 for node in names if isinstance(node.ctx, ast.Store)}
        self._yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes)

    def text(self, head: str) -> str:
        """Its JavaScript; `head` is `function name`, or the name of a method."""
        *kind, name = head.replace("__init__", "constructor").split()
        own = ", ".join(name for name in self._stored if name not in self._given)
        before = "super(); " * (name == "constructor") + f"let {own}; " * bool(own)
        head = " ".join([*kind, "*" * self._yields + name])
        return f"{head}({self.of(self._tree.args)}) {{ {before}{self._part(self._tree.body)} }}"

    def of(self, node: ast.AST) -> str:
        """The JavaScript of a node."""
        kind = type(node).__name__
        if own := getattr(self, f"_{kind}", None):
            return str(own(node))
        if kind not in _SHAPES:
            raise self._refusal(node)
        names = [name for _, name, *_ in string.Formatter().parse(_SHAPES[kind]) if name]
        made = {"each": self._each, "later": self._later}
        parts = {
            name: made[name](node) if name in made else self._part(getattr(node, name))
            for name in names
        }
        return _SHAPES[kind].format_map(parts)

    def _refusal(self, node: ast.AST) -> ValueError:
        (file, before), line = self._place, getattr(node, "lineno", 0)
        return ValueError(f"{file}:{before + line}: no page computes {ast.unparse(node)!r}")

    def _part(self, part: ast.AST | list[Any] | None) -> str:
        """What a node has: a node, several, a sign or nothing."""
        match part:
            case [ast.Expr(value=ast.Constant()), *others]:  # a docstring
                return self._part(others)
            case [ast.stmt() | ast.match_case(), *_]:
                return " ".join(map(self.of, part))
            case list():
                return ", ".join(map(self.of, part))
            case ast.operator() | ast.unaryop() | ast.boolop():
                return type(part).__name__
            case ast.AST():
                return self.of(part)
        return "null"

    def _arguments(self, node: ast.arguments) -> str:
        if node.kwonlyargs or node.vararg or node.kwarg:
            raise self._refusal(node)
        names = [one.arg for one in node.args if one.arg != "self"]
        usual = [f" = {self.of(value)}" for value in node.defaults]
        ends = [""] * (len(names) - len(usual)) + usual
        return ", ".join(map(str.__add__, names, ends))

    def _Constant(self, node: ast.Constant) -> str:  # noqa: N802 the class of the node
        return json.dumps(node.value)

    def _Name(self, node: ast.Name) -> str:  # noqa: N802
        name = node.id
        if name in self._given or name in self._stored:
            return "this" if name == "self" else name
        known = self._globals
        return self._script.take(name, known[name]) if name in known else f"py.{name}"

    def _Attribute(self, node: ast.Attribute) -> str:  # noqa: N802
        module = self._globals.get(getattr(node.value, "id", ""))
        if inspect.ismodule(module):
            return self._script.take(node.attr, getattr(module, node.attr))
        self._script.attributes.add(node.attr)
        return f"{self.of(node.value)}.{_RENAMED.get(node.attr, node.attr)}"

    def _Compare(self, node: ast.Compare) -> str:  # noqa: N802
        sides = [self.of(side) for side in (node.left, *node.comparators)]
        pairs = zip(node.ops, sides, sides[1:], strict=False)
        each = (f"py.{type(sign).__name__}({left}, {right})" for sign, left, right in pairs)
        return f"({' && '.join(each)})"

    def _Dict(self, node: ast.Dict) -> str:  # noqa: N802
        if not node.keys:
            return "new py.Counter([])"
        keys = (f"[{self.of(key)}]: " if key else "..." for key in node.keys)
        return f"({{ {', '.join(map(str.__add__, keys, map(self.of, node.values)))} }})"

    def _Call(self, node: ast.Call) -> str:  # noqa: N802
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "model_construct":
            function = function.value
        parts = [self.of(part) for part in node.args]
        words = (f"{word.arg}: " if word.arg else "..." for word in node.keywords)
        named = map(str.__add__, words, (self.of(word.value) for word in node.keywords))
        parts += [f"{{ {', '.join(named)} }}"] if node.keywords else []
        is_class = inspect.isclass(self._globals.get(getattr(function, "id", "")))
        called = self.of(function)
        if node.keywords and not is_class and not called.startswith("py."):
            raise self._refusal(node)
        return f"{'new ' * is_class}{called}({', '.join(parts)})"

    def _later(self, node: ast.AST) -> str:
        """The sides of `and` and `or`, which are computed if they decide."""
        assert isinstance(node, ast.BoolOp)
        return ", ".join(f"() => {self.of(part)}" for part in node.values)

    def _each(self, node: ast.AST) -> str:
        """The list of a comprehension."""
        assert isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp)
        inside = f"[{self.of(node.elt)}]"
        for of in reversed(node.generators):
            for test in of.ifs:
                inside = f"py.is({self.of(test)}) ? {inside} : []"
            inside = f"py.list({self.of(of.iter)}).flatMap(({self.of(of.target)}) => {inside})"
        return inside
