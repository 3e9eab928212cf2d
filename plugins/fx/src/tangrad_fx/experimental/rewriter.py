"""Trace functions whose statements are rewritten first: what asserts checks becomes a node."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import tangrad
from tangrad.nn import Module
from tangrad_fx._symbolic_trace import Tracer
from tangrad_fx.graph import Graph

__all__ = ["AST_Rewriter", "RewritingTracer"]

_CHECK = "_tangrad_fx_assert"


class AST_Rewriter(ast.NodeTransformer):
    """Replaces `assert` by a call, which a trace records where its condition is not known yet."""

    def rewrite(self, fn: FunctionType) -> FunctionType:
        """Return a function of the same globals and closure with its statements rewritten.

        Raises:
            OSError: its source is not there.
        """
        source = textwrap.dedent(inspect.getsource(fn))
        found = ast.parse(source).body[0]
        assert isinstance(found, ast.FunctionDef)
        found.decorator_list = []
        made = self.visit(found)
        free = fn.__code__.co_freevars
        outer = ast.parse(f"def outer({', '.join((_CHECK, *free))}):\n    return {made.name}")
        outer.body[0].body.insert(0, made)  # type: ignore[attr-defined]
        namespace: dict[str, Any] = {}
        exec(compile(ast.fix_missing_locations(outer), fn.__code__.co_filename, "exec"), namespace)
        code = namespace["outer"](tangrad._assert, *free).__code__
        cells = dict(zip(free, fn.__closure__ or (), strict=True))
        cells[_CHECK] = CellType(tangrad._assert)
        closure = tuple(cells[name] for name in code.co_freevars)
        rewritten = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)
        rewritten.__kwdefaults__, rewritten.__annotations__ = fn.__kwdefaults__, fn.__annotations__
        return rewritten

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Return the call in place of an assert."""
        message = node.msg if node.msg is not None else ast.Constant("")
        call = ast.Call(ast.Name(_CHECK, ast.Load()), [node.test, message], [])
        return ast.copy_location(ast.Expr(call), node)


class RewritingTracer(Tracer):
    """Traces modules and functions whose asserts become nodes."""

    def trace(
        self, root: Any | Callable[..., Any], concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        """Return the graph of a module or function after its statements were rewritten."""
        return super().trace(_rewritten(root), concrete_args)


def _rewritten(root: Any) -> Any:
    if not isinstance(root, Module):
        return AST_Rewriter().rewrite(root)
    forward = type(root).forward
    if not isinstance(forward, FunctionType) or type(root).__module__.startswith("tangrad"):
        return root
    made = _of_class(root, AST_Rewriter().rewrite(forward))
    for name, child in root.named_children():
        made._modules[name] = _rewritten(child)
    return made


def _of_class(root: Module, forward: FunctionType) -> Any:
    """Return a module of a class with another `forward`, which shares root's parameters."""
    body = {"forward": forward, "__module__": type(root).__module__}
    cls = type(type(root).__name__, (type(root),), body)
    made = cls.__new__(cls)
    made.__dict__.update(root.__dict__)
    made.__dict__["_modules"] = dict(root._modules)
    return made
