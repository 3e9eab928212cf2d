"""Methods for one module: what is known of it stands in the code, and calls are written out.

A walk over the statements of a method in their order. `self` and what it holds are the modules
themselves, so that attributes become constants, conditions of constants one of their branches,
and a call of a method that returns at its end the statements of it. What may be set or written is
read where it is: `kept` says which attributes these are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tangrad import nn
from tangrad_jit.scripting.check.functions import Parameter, Unit
from tangrad_jit.scripting.freezing.constants import evaluated, is_constant, literal, rebuilt
from tangrad_jit.scripting.freezing.library import is_of_library, library_forward
from tangrad_jit.scripting.freezing.places import Places
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import InterfaceType, ModuleType

__all__ = ["Specialiser", "UnfreezableError"]

_MODULES = (ModuleType, InterfaceType)
_DEEPEST = 64
_DROPPING = """
    dropout feature_dropout alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d
""".split()


class UnfreezableError(Exception):
    """A program whose modules are not known before it runs."""


@dataclass(slots=True)
class _Module:
    """A module that an expression is known to give."""

    module: Any


class Specialiser:
    """Make the methods of a frozen module.

    Args:
        places: where its modules stand, and what is kept of them.
        held: id of a tensor -> it and its constant.

    Attributes:
        made: the methods, by name.
        sets: ids of modules and names of attributes that are set.
    """

    def __init__(self, places: Places, held: dict[int, Any]) -> None:
        self._places, self._held = places, held
        self.made: dict[str, Unit] = {}
        self.sets: set[tuple[int, str]] = set()
        self._special: dict[tuple[int, int], Unit] = {}
        self._kept_units: list[Any] = []
        self._count = 0
        self._once: set[str] = set()
        self._depth = 0
        self._out: list[tree.Node] = []
        self._env: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self._inlines = True
        self._world: Any = None

    # --- methods

    def method(
        self, name: str, unit: Unit, module: Any, given: dict[str, tree.Expr] | None = None
    ) -> Unit:
        """Make a method of the frozen module of a method of a module inside.

        Args:
            name: of it. unit, module: the method, and the module.
            given: parameters that it does not have -> what they are.
        """
        owner, given = self._places.root_type, given or {}
        rest = [p for p in unit.parameters[1:] if p.name not in given]
        parameters = [Parameter("self", owner), *rest]
        before = self._out, self._env, self._names, self._inlines, self._world
        self._env = {p.name: tree.Local(unit.place(), p.type, p.name) for p in parameters}
        self._env |= {unit.parameters[0].name: _Module(module), **given}
        self._names = {p.name: p.name for p in parameters}
        self._inlines, self._world = True, unit.world
        try:
            body = self._block(unit.body)
        finally:
            self._out, self._env, self._names, self._inlines, self._world = before
        made = rebuilt(unit, name, body, parameters, owner)
        self.made[name] = made
        return made

    def _specialised(self, unit: Unit, module: Any) -> Unit:
        """Return a method of a module as one of the frozen module, for calls that stay."""
        key = id(unit), id(module)
        if key not in self._special:
            self._kept_units.append((unit, module))
            stem = "_".join([*self._places.path(module), unit.node.name])
            stem = "".join(c if c.isalnum() else "_" for c in stem)
            name, k = stem, 0
            while name in self.made or name in self._places.reserved:
                name, k = f"{stem}_{k}", k + 1
            self.made[name] = unit  # until it is made
            self._special[key] = self.method(name, unit, module)
        return self._special[key]

    # --- statements

    def _block(self, nodes: list[tree.Node]) -> list[tree.Node]:
        """Return the statements of a block; `_env` is what holds after it."""
        before, self._out = self._out, []
        try:
            self._statements(nodes)
            return self._out
        finally:
            self._out = before

    def _statements(self, nodes: list[tree.Node]) -> None:
        for node in nodes:
            getattr(self, f"_do_{type(node).__name__}")(node)
            if self._out and isinstance(self._out[-1], (tree.Return, tree.Break, tree.Continue)):
                return

    def _renamed(self, name: str) -> str:
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = name if not self._depth else self._fresh(name)
        return found

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{name.lstrip('_') or 'v'}_{self._count}"

    def _target(self, target: Any) -> Any:
        """Return a target under its new names, of which nothing is known."""
        if isinstance(target, str):
            self._env.pop(target, None)
            return self._renamed(target)
        return replace(target, targets=[self._target(part) for part in target.targets])

    def _forget(self, names: set[str]) -> None:
        for name in names:
            if isinstance(self._env.get(name), _Module):
                self._env[name] = None
            else:
                self._env.pop(name, None)

    def _do_Assign(self, node: tree.Assign) -> None:
        known = self._known(node.value)
        if known is not None and isinstance(node.target, str):
            self._env[node.target] = known
            return
        value = self.expr(node.value)
        if isinstance(node.target, tree.Unpack) and isinstance(value, tree.MakeTuple):
            self._unpack(node.target, value)
            return
        if isinstance(value.type, _MODULES) and isinstance(node.target, str):
            self._env[node.target] = value
            return
        if isinstance(node.target, str) and isinstance(value, tree.MakeTuple):
            held = [self._fixed(element) for element in value.elements]
            value = replace(value, elements=held)
        target = self._target(node.target)
        self._out.append(tree.Assign(node.place, target, value))
        if isinstance(target, str) and isinstance(value, (tree.Const, tree.MakeTuple)):
            self._env[node.target] = value

    def _unpack(self, target: tree.Unpack, value: tree.MakeTuple) -> None:
        """Store the members of a tuple, which is not made for it."""
        count = len(value.elements)
        if target.star >= 0 or len(target.targets) != count:
            self._out.append(tree.Assign(target.place, self._target(target), value))
            return
        held = [self._stored(element, len(self._out)) for element in value.elements]
        for part, element in zip(target.targets, held, strict=True):
            if isinstance(part, tree.Unpack) and isinstance(element, tree.MakeTuple):
                self._unpack(part, element)
                continue
            self._out.append(tree.Assign(target.place, self._target(part), element))
            if isinstance(part, str) and isinstance(element, tree.Const):
                self._env[part] = element

    def _do_SetAttr(self, node: tree.SetAttr) -> None:
        owner = self._known(node.owner)
        if isinstance(node.value.type, _MODULES):
            raise UnfreezableError  # a module in another's place
        value = self.expr(node.value)
        if owner is None:
            self._out.append(replace(node, owner=self.expr(node.owner), value=value))
            return
        self.sets.add((id(owner.module), node.name))
        at = self._places.owner(owner.module, node.name, value.type, node.place)
        self._out.append(replace(node, owner=at, value=value))

    def _do_SetItem(self, node: tree.SetItem) -> None:
        value, owner, *parts = self._each([node.value, node.owner, *node.parts])
        self._out.append(tree.SetItem(node.place, owner, parts, value))

    def _do_Do(self, node: tree.Do) -> None:
        value = self.expr(node.value)
        if not isinstance(value, (tree.Const, tree.Local)):
            self._out.append(tree.Do(node.place, value))

    def _do_If(self, node: tree.If) -> None:
        condition = self.expr(node.condition)
        if isinstance(condition, tree.Const):
            self._statements(node.body if condition.value else node.orelse)
            return
        before = dict(self._env)
        body = self._block(node.body)
        then, self._env = self._env, before
        orelse = self._block(node.orelse)
        gone = [bool(part) and isinstance(part[-1], _LEAVING) for part in (body, orelse)]
        if gone[0] != gone[1]:
            self._env = self._env if gone[0] else then
        else:
            self._merge(then)
        self._out.append(tree.If(node.place, condition, body, orelse))

    def _merge(self, other: dict[str, Any]) -> None:
        """Keep of what is known what holds in both branches."""
        for name in {*self._env, *other}:
            if self._env.get(name) != other.get(name):
                self._forget({name})

    def _do_While(self, node: tree.While) -> None:
        self._forget(tree.assigned(node.body))
        condition = self._alone(node.condition)
        held = dict(self._env)
        body = self._block(node.body)
        self._env = held
        self._out.append(tree.While(node.place, condition, body))

    def _do_For(self, node: tree.For) -> None:
        iteration = self._iteration(node.iteration)
        self._forget(tree.assigned([node]))
        target = self._target(node.target)
        held = dict(self._env)
        body = self._block(node.body)
        self._env = held
        self._out.append(tree.For(node.place, target, iteration, body))

    def _iteration(self, over: tree.Iteration) -> tree.Iteration:
        parts = [self._iteration(part) for part in over.parts]
        return replace(over, parts=parts, values=self._each(over.values))

    def _do_With(self, node: tree.With) -> None:
        contexts = self._each(node.contexts)
        names = [None if name is None else self._target(name) for name in node.names]
        body = self._block(node.body)
        self._out.append(tree.With(node.place, contexts, names, body))

    def _do_Break(self, node: tree.Break) -> None:
        self._out.append(node)

    def _do_Continue(self, node: tree.Continue) -> None:
        self._out.append(node)

    def _do_Return(self, node: tree.Return) -> None:
        self._out.append(tree.Return(node.place, self.expr(node.value)))

    def _do_Raise(self, node: tree.Raise) -> None:
        self._out.append(replace(node, message=self.expr(node.message)))

    def _do_Assert(self, node: tree.Assert) -> None:
        condition = self.expr(node.condition)
        if isinstance(condition, tree.Const) and condition.value is True:
            return
        message = None if node.message is None else self._alone(node.message)
        self._out.append(tree.Assert(node.place, condition, message))

    # --- modules that are known

    def _known(self, node: Any) -> _Module | None:
        """Return the module that an expression gives, if it is known, and not kept as it is.

        Raises:
            UnfreezableError: it gives a module, and several may be meant.
        """
        if not isinstance(node, tree.Expr) or not isinstance(node.type, _MODULES):
            return None
        if isinstance(node, tree.Local):
            found = self._env.get(node.name, None)
            if isinstance(found, (_Module, tree.Expr)):
                return found if isinstance(found, _Module) else None
        elif isinstance(node, tree.GetAttr):
            owner = self._known(node.owner)
            if owner is None:
                return None
            child = self._places.value(owner.module, node.name)
            if isinstance(child, nn.Module):
                return None if self._places.is_whole(child) else _Module(child)
        elif isinstance(node, tree.Convert):
            return self._known(node.value)
        raise UnfreezableError

    # --- expressions

    def expr(self, node: tree.Expr) -> tree.Expr:
        """Return an expression of what the frozen module has."""
        special = getattr(self, f"_on_{type(node).__name__}", None)
        if special is not None:
            made: tree.Expr = special(node)
            return made
        fields: dict[str, Any] = {}
        flat: list[tree.Expr] = []
        shapes: list[tuple[str, Any]] = []
        for name in node.__dataclass_fields__:
            value = getattr(node, name)
            if isinstance(value, tree.Expr):
                shapes.append((name, None))
                flat.append(value)
            elif isinstance(value, list) and value and isinstance(value[0], tree.Expr):
                shapes.append((name, len(value)))
                flat.extend(value)
            elif isinstance(value, dict) and value:
                shapes.append((name, list(value)))
                flat.extend(value.values())
        done = self._each(flat)
        for name, shape in shapes:
            if shape is None:
                fields[name], done = done[0], done[1:]
            elif isinstance(shape, int):
                fields[name], done = done[:shape], done[shape:]
            else:
                fields[name] = dict(zip(shape, done, strict=False))
                done = done[len(shape) :]
        made = replace(node, **fields)
        if isinstance(made, tree.OpCall) and made.name in _DROPOUTS:
            flag = made.args[2] if len(made.args) > 2 else made.kwargs.get("training")
            if made.args and isinstance(flag, tree.Const) and not flag.value:
                return made.args[0]
        if isinstance(made, tree.Apply) and made.builtin.name in _IS_NONE and _is_some(made):
            return tree.Const(made.place, kinds.BOOL, _IS_NONE[made.builtin.name])
        return evaluated(made, self._world)

    def _each(self, nodes: list[tree.Expr]) -> list[tree.Expr]:
        """Return expressions that are computed one after another.

        Where one brings statements along, those before it are computed before these.
        """
        made: list[tree.Expr] = []
        for node in nodes:
            at = len(self._out)
            value = self.expr(node)
            if self._inlines and _is_named(value):
                value = self._stored(value, len(self._out))
            if len(self._out) > at:
                for k, earlier in enumerate(made):
                    if not is_constant(earlier) and not isinstance(earlier, tree.Local):
                        made[k] = self._stored(earlier, at)
                        at += 1
            made.append(value)
        return made

    def _stored(self, value: tree.Expr, at: int) -> tree.Expr:
        """Return the variable that holds a value from a place among the statements on."""
        if isinstance(value, (tree.SliceOf, tree.Const)) or value.type == kinds.NONE:
            return value
        name = self._fresh("")
        self._once.add(name)
        self._out.insert(at, tree.Assign(value.place, name, value))
        return tree.Local(value.place, value.type, name)

    def _fixed(self, value: tree.Expr) -> tree.Expr:
        """Return a value that stays what it is, whatever is assigned later."""
        if isinstance(value, tree.Const) or getattr(value, "name", "") in self._once:
            return value
        if isinstance(value, tree.MakeTuple):
            return replace(value, elements=[self._fixed(part) for part in value.elements])
        return self._stored(value, len(self._out))

    def _on_TupleItem(self, node: tree.TupleItem) -> tree.Expr:
        value = self.expr(node.value)
        if isinstance(value, tree.MakeTuple) and all(map(_is_at_hand, value.elements)):
            return value.elements[node.index]
        return evaluated(replace(node, value=value), self._world)

    def _alone(self, node: tree.Expr) -> tree.Expr:
        """Return an expression that stands where no statements may."""
        before, self._inlines = self._inlines, False
        try:
            return self.expr(node)
        finally:
            self._inlines = before

    def _on_Local(self, node: tree.Local) -> tree.Expr:
        found = self._env.get(node.name)
        if isinstance(found, _Module):
            raise UnfreezableError
        if isinstance(found, tree.Const):
            return tree.Const(node.place, node.type, found.value)
        if isinstance(found, tree.Local):
            narrower = isinstance(node.type, kinds.OptionalType)
            return tree.Local(node.place, found.type if narrower else node.type, found.name)
        if found is not None:
            return found
        return tree.Local(node.place, node.type, self._renamed(node.name))

    def _on_Const(self, node: tree.Const) -> tree.Expr:
        return replace(node)

    def _on_GetAttr(self, node: tree.GetAttr) -> tree.Expr:
        owner = self._known(node.owner) if isinstance(node.owner.type, _MODULES) else None
        if owner is None:
            made = replace(node, owner=self.expr(node.owner))
            return evaluated(made, self._world)
        value = self._places.value(owner.module, node.name)
        if isinstance(value, nn.Module):
            if not self._places.is_whole(value):
                raise UnfreezableError  # a module as a value
            return self._places.whole(value, node.type, node.place)
        if not self._places.is_kept(owner.module, node.name):
            found = literal(value, node.type, node.place, self._held)
            if found is not None:
                return found
        at = self._places.owner(owner.module, node.name, node.type, node.place)
        return tree.GetAttr(node.place, node.type, at, node.name)

    def _on_And(self, node: tree.And) -> tree.Expr:
        left = self.expr(node.left)
        if isinstance(left, tree.Const):
            return self.expr(node.right) if left.value else left
        return tree.And(node.place, node.type, left, self._alone(node.right))

    def _on_Or(self, node: tree.Or) -> tree.Expr:
        left = self.expr(node.left)
        if isinstance(left, tree.Const):
            return left if left.value else self.expr(node.right)
        return tree.Or(node.place, node.type, left, self._alone(node.right))

    def _on_IfElse(self, node: tree.IfElse) -> tree.Expr:
        condition = self.expr(node.condition)
        if isinstance(condition, tree.Const):
            return self.expr(node.body if condition.value else node.orelse)
        body, orelse = self._alone(node.body), self._alone(node.orelse)
        return tree.IfElse(node.place, node.type, condition, body, orelse)

    def _on_MakeDict(self, node: tree.MakeDict) -> tree.Expr:
        pairs = [part for pair in zip(node.keys, node.values, strict=True) for part in pair]
        made = self._each(pairs)
        return replace(node, keys=made[::2], values=made[1::2])

    def _on_Comprehension(self, node: tree.Comprehension) -> tree.Expr:
        iteration = self._iteration(node.iteration)
        held = dict(self._env)
        target = self._target(node.target)
        value = self._alone(node.value)
        key = None if node.key is None else self._alone(node.key)
        self._env = held
        return tree.Comprehension(node.place, node.type, target, iteration, value, key)

    def _on_Fork(self, node: tree.Fork) -> tree.Expr:
        return replace(node, call=self._alone(node.call))

    # --- calls

    def _on_Call(self, node: tree.Call) -> tree.Expr:
        owner = None
        if node.args and isinstance(node.args[0].type, _MODULES):
            owner = self._known(node.args[0])
        if owner is None:
            return self._called(node, node.unit, None, node.args)
        return self._called(node, node.unit, owner.module, node.args[1:])

    def _on_Invoke(self, node: tree.Invoke) -> tree.Expr:
        is_module = isinstance(node.owner.type, _MODULES)
        owner = self._known(node.owner) if is_module else None
        if owner is None:
            made, *args = self._each([node.owner, *node.args])
            return replace(node, owner=made, args=args)
        module, unit = owner.module, node.unit
        if unit is None:
            own = getattr(module, "script_unit", None)
            unit = library_forward(module) if own is None else own.method(node.name)
        if not isinstance(unit, Unit):
            at = self._places.whole(module, node.owner.type, node.place)
            return replace(node, owner=at, args=self._each(node.args))
        return self._called(node, unit, module, node.args)

    def _called(self, node: Any, unit: Unit, module: Any, args: list[tree.Expr]) -> tree.Expr:
        """Return what a call gives: its statements are written out, or it stays a call."""
        given = self._each(args)
        if self._inlines and self._depth < _DEEPEST:
            found = self._inlined(unit, module, given, node.place)
            if found is not None:
                return found
        if module is None:
            return replace(node, args=given)
        special = self._specialised(unit, module)
        root = tree.Local(node.place, self._places.root_type, "self")
        return tree.Invoke(node.place, node.type, root, special.name, special, given)

    def _inlined(
        self, unit: Unit, module: Any, args: list[tree.Expr], place: Place
    ) -> tree.Expr | None:
        """Write out the statements of a call, and return its result; None where it cannot be."""
        before = self._env, self._names, self._world, set(self.sets)
        written = tree.assigned(unit.body)
        out: list[tree.Node] = []
        env: dict[str, Any] = {}
        self._depth, count = self._depth + 1, self._count
        names: dict[str, str] = {}
        parameters = unit.parameters
        if module is not None:
            env[parameters[0].name] = _Module(module)
            parameters = parameters[1:]
        for parameter, arg in zip(parameters, args, strict=True):
            if parameter.name in written:
                names[parameter.name] = self._fresh(parameter.name)
                value: tree.Expr = tree.Convert(arg.place, parameter.type, arg, "refine")
                value = arg if arg.type == parameter.type else value
                out.append(tree.Assign(place, names[parameter.name], value))
                if isinstance(arg, tree.Const):
                    env[parameter.name] = arg
            elif isinstance(arg, (tree.Const, tree.Local)):
                env[parameter.name] = arg
            else:
                name = self._fresh(parameter.name)
                out.append(tree.Assign(place, name, arg))
                env[parameter.name] = tree.Local(arg.place, arg.type, name)
        self._env, self._names, self._world = env, names, unit.world
        try:
            body = self._block(unit.body)
        finally:
            self._depth -= 1
            self._env, self._names, self._world, sets = before
        if not body or not isinstance(body[-1], tree.Return) or _leaves(body[:-1]):
            self.sets, self._count = sets, count
            return None
        if is_of_library(unit):
            for inner in tree.every(body):
                if isinstance(inner, tree.Node) and inner.place.source is unit.source:
                    inner.place = place
        self._out.extend([*out, *body[:-1]])
        return body[-1].value


# Ops that give their first argument itself unless their third says that they are trained.
_DROPOUTS = frozenset(f"aten::{name}{end}" for name in _DROPPING for end in ("", "_"))
_LEAVING = (tree.Return, tree.Break, tree.Continue, tree.Raise)


_IS_NONE = {"__is__": False, "__isnot__": True}


def _is_some(node: tree.Apply) -> bool:
    """Return whether a variable is compared with None whose type says that it is none."""
    value, other = node.args
    if not isinstance(other, tree.Const) or other.value is not None:
        return False
    is_known = isinstance(value.type, (kinds.TupleType, kinds.ListType, kinds.DictType))
    return isinstance(value, tree.Local) and (is_known or value.type in _NEVER_NONE)


_NEVER_NONE = (kinds.TENSOR, *kinds.NUMBERS, kinds.BOOL, kinds.STR)


def _is_at_hand(value: tree.Expr) -> bool:
    """Return whether an expression computes nothing."""
    if isinstance(value, tree.MakeTuple):
        return all(map(_is_at_hand, value.elements))
    return isinstance(value, (tree.Const, tree.Local))


def _is_named(value: tree.Expr) -> bool:
    """Return whether an expression gets a name where it stands inside of something else."""
    made = isinstance(value, (tree.OpCall, tree.Subscript, tree.Apply))
    return made and value.type == kinds.TENSOR


def _leaves(body: list[tree.Node]) -> bool:
    """Return whether statements return."""
    return any(isinstance(node, tree.Return) for node in tree.every(body))
