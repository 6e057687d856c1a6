"""Names of a Python file and the scopes that they belong to: what a renaming must know."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class Scope:
    """A module, class, function or comprehension, with the names that it binds."""

    kind: str
    parent: Scope | None
    names: set[str] = field(default_factory=set)
    imports: dict[str, Import] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)

    def lookup(self, name: str) -> Scope | None:
        """Return the scope that a name belongs to; None for a builtin."""
        scope: Scope | None = self
        first = True
        while scope is not None:
            if name in scope.shared:
                return scope.module()
            if name in scope.names and (first or scope.kind != "class"):
                return scope
            first = False
            scope = scope.parent
        return None

    def module(self) -> Scope:
        return self if self.parent is None else self.parent.module()

    def hides(self, name: str) -> bool:
        """Whether a name that is looked up here would not be the module's."""
        found = self.lookup(name)
        return found is not None and found.parent is not None


@dataclass(eq=False)
class Import:
    """One name that an import statement binds."""

    statement: ast.Import | ast.ImportFrom
    alias: ast.alias
    typing: bool
    scope: Scope

    @property
    def local(self) -> str:
        return self.alias.asname or self.alias.name.partition(".")[0]


@dataclass(eq=False)
class Use:
    """A name where it is used."""

    node: ast.Name
    scope: Scope
    owner: Scope | None
    attribute: ast.Attribute | None
    text: ast.JoinedStr | None
    """The f-string in which it stands."""


@dataclass(eq=False)
class Names:
    """Every name of a file."""

    module: Scope
    uses: list[Use] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)


def read(tree: ast.Module) -> Names:
    """Resolve every name of a module."""
    names = Names(Scope("module", None))
    _Reader(names).module(tree)
    return names


class _Reader:
    def __init__(self, names: Names) -> None:
        self.names = names

    def module(self, tree: ast.Module) -> None:
        self._bind(tree.body, self.names.module, typing=False)
        for node in tree.body:
            self._visit(node, self.names.module, None, None)

    def _bind(self, body: Iterable[ast.AST], scope: Scope, *, typing: bool) -> None:
        for node in body:
            self._bind_one(node, scope, typing)

    def _bind_one(self, node: ast.AST, scope: Scope, typing: bool) -> None:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            scope.names.add(node.name)
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                made = Import(node, alias, typing, scope)
                scope.names.add(made.local)
                scope.imports[made.local] = made
                self.names.imports.append(made)
            return
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            if isinstance(node, ast.Global):
                scope.shared.update(node.names)
            return
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, COMPREHENSIONS):
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    scope.names.add(inner.target.id)
            return
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            scope.names.add(node.id)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            scope.names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            scope.names.add(node.rest)
        typing = typing or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        self._bind(ast.iter_child_nodes(node), scope, typing=typing)

    def _visit(
        self, node: ast.AST, scope: Scope, over: ast.Attribute | None, text: ast.JoinedStr | None
    ) -> None:
        if isinstance(node, ast.Name):
            owner = scope.lookup(node.id)
            self.names.uses.append(Use(node, scope, owner, over, text))
        elif isinstance(node, FUNCTIONS):
            arguments = node.args
            for outside in (*node.decorator_list, *_annotations(arguments), node.returns):
                if outside is not None:
                    self._visit(outside, scope, None, text)
            self._function(arguments, node.body, scope, text)
        elif isinstance(node, ast.Lambda):
            for outside in _annotations(node.args):
                self._visit(outside, scope, None, text)
            self._function(node.args, [node.body], scope, text)
        elif isinstance(node, ast.ClassDef):
            for outside in (*node.decorator_list, *node.bases, *node.keywords):
                self._visit(outside, scope, None, text)
            inner = Scope("class", scope)
            self._bind(node.body, inner, typing=False)
            for child in node.body:
                self._visit(child, inner, None, text)
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node, scope, text)
        else:
            inside = node if isinstance(node, ast.JoinedStr) and text is None else text
            above = node if isinstance(node, ast.Attribute) else None
            for below in ast.iter_child_nodes(node):
                self._visit(below, scope, above, inside)

    def _function(
        self,
        arguments: ast.arguments,
        body: Sequence[ast.AST],
        scope: Scope,
        text: ast.JoinedStr | None,
    ) -> None:
        inner = Scope("function", scope)
        inner.names.update(a.arg for a in _arguments(arguments))
        self._bind(body, inner, typing=False)
        inner.names -= inner.shared
        for child in body:
            self._visit(child, inner, None, text)

    def _comprehension(self, node: ast.AST, scope: Scope, text: ast.JoinedStr | None) -> None:
        inner = Scope("comprehension", scope)
        for generator in node.generators:  # type: ignore[attr-defined]  # one of four classes
            for target in ast.walk(generator.target):
                if isinstance(target, ast.Name):
                    inner.names.add(target.id)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.comprehension):
                part: ast.AST
                parts: tuple[ast.AST, ...] = (child.target, child.iter, *child.ifs)
                for part in parts:
                    self._visit(part, inner, None, text)
            else:
                self._visit(child, inner, None, text)


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (a for a in (arguments.vararg, arguments.kwarg) if a is not None)


def _annotations(arguments: ast.arguments) -> Iterator[ast.AST]:
    yield from (a.annotation for a in _arguments(arguments) if a.annotation is not None)
    yield from arguments.defaults
    yield from (d for d in arguments.kw_defaults if d is not None)
