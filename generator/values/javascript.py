"""Functions of Python as JavaScript, so that a page computes with the law that Python has.

In: functions and classes that calculate with numbers, words, lists and records. Out: a script with
these and with all that they call, under the same names; `website/assets/python.js` has what Python
itself brings. A ValueError names the line of a construct that has no counterpart.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from pydantic import BaseModel

_OURS = "proofbook"
_RENAMED = {"startswith": "startsWith", "endswith": "endsWith"}


def script_of(name: str, roots: Iterable[type | FunctionType]) -> str:
    """A script in which the object `name` holds JavaScript of the roots, each by its own name."""
    return _Script().text(name, list(roots))


class _Script:
    """What is translated so far; a class has those methods alone that something calls."""

    def __init__(self) -> None:
        self.constants: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.classes: dict[str, type] = {}
        self.attributes: set[str] = set()

    def text(self, name: str, roots: Sequence[type | FunctionType]) -> str:
        for root in roots:
            self.take(root.__name__, root)
        methods: dict[str, dict[str, str]] = {}
        while any([self._add_methods(of, methods.setdefault(of, {})) for of in [*self.classes]]):
            pass  # what a method calls may be a method of a class that is done
        classes = (
            f"class {of} extends py.Record {{\nstatic fields = {_fields(self.classes[of])};\n"
            + "\n".join(own.values())
            + "\n}"
            for of, own in methods.items()
        )
        given = ", ".join(root.__name__ for root in roots)
        parts = [*self.constants.values(), *classes, *self.functions.values()]
        parts = [f"const {name} = (() => {{", *parts, f"return {{ {given} }};", "})();\n"]
        return "\n".join(parts)

    def take(self, name: str, known: Any) -> str:
        """The name of a function, a class or a constant in the script, which then has it."""
        if inspect.isclass(known) or inspect.isfunction(known):
            if known.__module__.partition(".")[0] != _OURS:
                return f"py.{name}"
            if inspect.isclass(known):
                self.classes.setdefault(name, known)
            elif name not in self.functions:
                self.functions[name] = ""
                self.functions[name] = _Function(self, known).text(f"function {name}")
        elif callable(known):
            return f"py.{name}"
        else:
            self.constants.setdefault(name, f"const {name} = {json.dumps(known)};")
        return name

    def _add_methods(self, of: str, done: dict[str, str]) -> bool:
        """Translate the methods of a class that are called and are not there yet."""
        own = vars(self.classes[of])
        lacking = [n for n in own if n not in done and (n in self.attributes or n == "__init__")]
        for name in lacking:
            done[name] = ""
            member = getattr(own[name], "fget", None) or getattr(own[name], "func", own[name])
            if not inspect.isfunction(member) or member.__module__.partition(".")[0] != _OURS:
                continue  # a field, or what pydantic makes
            kind = "get " if member is not own[name] else ""
            done[name] = _Function(self, member).text(f"{kind}{name}")
        return bool(lacking)


def _fields(of: type) -> str:
    """The defaults of a record's fields."""
    if not issubclass(of, BaseModel):
        return "{}"
    fields = {name: field for name, field in of.model_fields.items() if not field.is_required()}
    values = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    plain = {n: v.model_dump() if isinstance(v, BaseModel) else v for n, v in values.items()}
    return json.dumps(plain)


class _Function:
    """A function, statement by statement."""

    def __init__(self, script: _Script, function: FunctionType) -> None:
        self._script, self._globals = script, function.__globals__
        self._file = function.__code__.co_filename
        lines, self._first = inspect.getsourcelines(function)
        (self._tree,) = ast.parse(textwrap.dedent("".join(lines))).body
        names = (node for node in ast.walk(self._tree) if isinstance(node, ast.Name | ast.arg))
        stored = (ast.arg, ast.Store)
        self._locals = {
            node.arg if isinstance(node, ast.arg) else node.id: None
            for node in names
            if isinstance(getattr(node, "ctx", node), stored)
        }

    def text(self, head: str) -> str:
        """Its JavaScript; `head` is `function name`, or the name of a method."""
        tree = self._tree
        assert isinstance(tree, ast.FunctionDef)
        arguments = self._arguments(tree.args)
        given = {word.partition(" ")[0] for word in arguments}
        body = self._block(tree.body)
        own = ", ".join(name for name in self._locals if name not in given and name != "self")
        yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(tree))
        before = "super();" if tree.name == "__init__" else ""
        head = "constructor" if before else head.replace("function ", f"function{'*' * yields} ")
        head = f"*{head}" if yields and not head.startswith("function") else head
        inside = f"{before}let {own};" if own else before
        return f"{head}({', '.join(arguments)}) {{ {inside} {body} }}"

    def _arguments(self, of: ast.arguments) -> list[str]:
        names = [one.arg for one in (*of.args, *of.kwonlyargs)]
        defaults = [*of.defaults, *of.kw_defaults]
        lacking = len(names) - len(defaults)
        return [
            name if at < lacking or defaults[at - lacking] is None
            else f"{name} = {self.value(defaults[at - lacking])}"
            for at, name in enumerate(names) if name != "self"
        ]  # fmt: skip

    def _fail(self, node: Any) -> ValueError:
        line = self._first + getattr(node, "lineno", 1) - 1
        return ValueError(f"{self._file}:{line}: no page calculates with {ast.unparse(node)!r}")

    def _block(self, body: Iterable[ast.stmt]) -> str:
        return " ".join(line for node in body if (line := self._statement(node)))

    def _statement(self, node: ast.stmt) -> str:
        match node:
            case ast.Assert() | ast.Pass() | ast.Expr(value=ast.Constant()):
                return ""
            case ast.Expr(value=inner):
                return f"{self.value(inner)};"
            case ast.Assign(targets=[target], value=inner) | ast.AnnAssign(
                target=target, value=ast.expr() as inner
            ):
                return f"{self.value(target)} = {self.value(inner)};"
            case ast.AugAssign(target=target, op=sign, value=inner):
                old = self.value(target)
                return f"{old} = py.{type(sign).__name__}({old}, {self.value(inner)});"
            case ast.Return(value=inner):
                return f"return {self.value(inner) if inner else ''};"
            case ast.If(test=test, body=body, orelse=others):
                rest = f" else {{ {self._block(others)} }}" if others else ""
                return f"if (py.is({self.value(test)})) {{ {self._block(body)} }}{rest}"
            case ast.For(target=target, iter=of, body=body, orelse=[]):
                each = f"const {self.value(target)} of py.list({self.value(of)})"
                return f"for ({each}) {{ {self._block(body)} }}"
            case ast.Match(subject=subject, cases=cases):
                return " else ".join(self._case(self.value(subject), case) for case in cases)
            case ast.Raise(exc=ast.Call(args=[message])):
                return f"throw new Error({self.value(message)});"
        raise self._fail(node)

    def _case(self, subject: str, case: ast.match_case) -> str:
        if not isinstance(case.pattern, ast.MatchValue):
            raise self._fail(case.pattern)
        test = f"py.Eq({subject}, {self.value(case.pattern.value)})"
        return f"if ({test}) {{ {self._block(case.body)} }}"

    def value(self, node: ast.expr) -> str:
        """An expression."""
        match node:
            case ast.Constant(value=str() | int() | float() | None as constant):
                return json.dumps(constant)
            case ast.Name(id=name):
                return self._name(name, node)
            case ast.Attribute(value=ast.Name(id=of), attr=name) if inspect.ismodule(
                module := self._globals.get(of)
            ):
                return self._script.take(name, getattr(module, name))
            case ast.Attribute(value=of, attr=name):
                self._script.attributes.add(name)
                return f"{self.value(of)}.{_RENAMED.get(name, name)}"
            case ast.Subscript(value=of, slice=index):
                return f"py.at({self.value(of)}, {self.value(index)})"
            case ast.Slice(lower=lower, upper=upper, step=step):
                ends = (self.value(end) if end else "null" for end in (lower, upper, step))
                return f"py.slice({', '.join(ends)})"
            case ast.BinOp(left=left, op=sign, right=right):
                return f"py.{type(sign).__name__}({self.value(left)}, {self.value(right)})"
            case ast.UnaryOp(op=sign, operand=operand):
                return f"py.{type(sign).__name__}({self.value(operand)})"
            case ast.BoolOp(op=sign, values=parts):
                later = ", ".join(f"() => {self.value(part)}" for part in parts)
                return f"py.{type(sign).__name__}({later})"
            case ast.Compare(left=left, ops=signs, comparators=others):
                sides = [self.value(side) for side in (left, *others)]
                pairs = zip(signs, sides, sides[1:], strict=False)
                each = (f"py.{type(sign).__name__}({one}, {two})" for sign, one, two in pairs)
                return f"({' && '.join(each)})"
            case ast.IfExp(test=test, body=then, orelse=other):
                return f"(py.is({self.value(test)}) ? {self.value(then)} : {self.value(other)})"
            case ast.Lambda(args=arguments, body=body):
                return f"(({', '.join(self._arguments(arguments))}) => {self.value(body)})"
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return f"[{', '.join(map(self.value, parts))}]"
            case ast.Set(elts=parts):
                return f"new Set([{', '.join(map(self.value, parts))}])"
            case ast.Starred(value=inner):
                return f"...py.list({self.value(inner)})"
            case ast.Dict(keys=keys, values=values):
                items = map(self._item, keys, values)
                return f"py.dict({', '.join(items)})"
            case ast.SetComp():
                return f"new Set({self._comprehension(node)})"
            case ast.ListComp() | ast.GeneratorExp():
                return self._comprehension(node)
            case ast.JoinedStr(values=parts):
                return f"[{', '.join(map(self.value, parts))}].join('')"
            case ast.FormattedValue(value=inner, format_spec=None):
                return self.value(inner)
            case ast.NamedExpr(target=target, value=inner):
                return f"({self.value(target)} = {self.value(inner)})"
            case ast.Yield(value=ast.expr() as inner):
                return f"yield {self.value(inner)}"
            case ast.YieldFrom(value=inner):
                return f"yield* {self.value(inner)}"
            case ast.Call():
                return self._call(node)
        raise self._fail(node)

    def _item(self, key: ast.expr | None, inner: ast.expr) -> str:
        """The key and the value of a dictionary; of another one in it, that one alone."""
        return f"[{self.value(key)}, {self.value(inner)}]" if key else f"[{self.value(inner)}]"

    def _name(self, name: str, node: ast.expr) -> str:
        if name == "self":
            return "this"
        if name in self._locals:
            return name
        if name not in self._globals:
            return f"py.{name}"  # of Python itself
        return self._script.take(name, self._globals[name])

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> str:
        inside = f"[{self.value(node.elt)}]"
        for of in reversed(node.generators):
            for test in reversed(of.ifs):
                inside = f"py.is({self.value(test)}) ? {inside} : []"
            each = f"({self.value(of.target)}) => {inside}"
            inside = f"py.list({self.value(of.iter)}).flatMap({each})"
        return inside

    def _call(self, node: ast.Call) -> str:
        function, parts = node.func, [self.value(part) for part in node.args]
        if isinstance(function, ast.Attribute) and function.attr == "model_construct":
            function = function.value
        called = self.value(function)
        if node.keywords:
            given = ((word.arg, self.value(word.value)) for word in node.keywords)
            words = (f"{name}: {text}" if name else f"...{text}" for name, text in given)
            parts.append(f"{{ {', '.join(words)} }}")
        known = self._globals.get(getattr(function, "id", ""))
        if node.keywords and not called.startswith("py.") and not inspect.isclass(known):
            raise self._fail(node)
        return f"{'new ' if inspect.isclass(known) else ''}{called}({', '.join(parts)})"
