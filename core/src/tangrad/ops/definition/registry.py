"""The ops defined so far, by name, and the loading of families on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tangrad import _C

OPS: dict[str, _C.Op] = {}
NAMESPACES: dict[str, Any] = {}  # of ops called `package::op`, and those of `tangrad.library`
_index: dict[str, str] | None = None
_of_packages: dict[str, str] | None = None
_loaded: set[str] = set()


class OpNamespace:
    """The ops of one namespace, `package::op` as `tangrad.ops.package.op`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return f"<tangrad.ops.{self._name}>"


def name_allowed(definition: Any) -> str:
    """Return the name that an op gets, before it is made: the compiled core knows some by name.

    A plugin's op that has the name of a built-in one is kept as the plugin's failure, and called
    `PACKAGE::NAME`, for a later core may take any plain name.

    Raises:
        ValueError: it is no name, or a built-in's, and no plugin is being loaded.
    """
    name: str = definition.schema.name
    return name if is_core(definition) else _name_for_plugin(name, definition)


def add(made: _C.Op, definition: Any) -> None:
    """Register an op under its name and aliases.

    Raises:
        ValueError: the name is taken by another definition.
    """
    names = [made.name]
    suffix = (
        "_"
        if made.functional is not None
        or (made.name.endswith("_") and made.name[:-1] == definition.name)
        else ""
    )
    aliases = [alias + suffix for alias in definition.alias]
    if not is_core(definition):
        aliases = [_name_for_plugin(alias, definition) for alias in aliases]
    for name in (*names, *aliases):
        if name in OPS and OPS[name].definition is not definition:
            raise ValueError(
                f"op '{name}' is defined twice: in {_origin(OPS[name].definition)} and in "
                f"{_origin(definition)}; name one of them PACKAGE::{name.rpartition('::')[2]}"
            )
        OPS[name] = made
        namespace, _, last = name.rpartition("::")
        if namespace:
            holder = NAMESPACES.setdefault(namespace, OpNamespace(namespace))
            vars(holder)[last] = made


def is_core(definition: Any) -> bool:
    """Return whether a definition is tangrad's own, and no other package's."""
    return definition.module == "tangrad" or definition.module.startswith("tangrad.")


def _origin(definition: Any) -> str:
    """Return the module of a definition, and the distribution that brings it."""
    if is_core(definition):
        return f"{definition.module} (tangrad itself)"
    from tangrad.discovery import discovery

    top = definition.module.partition(".")[0]
    found = {p.distribution for p in discovery.plugins() if p.module.partition(".")[0] == top}
    return f"{definition.module} ({', '.join(sorted(found)) or 'no distribution'})"


def _name_for_plugin(name: str, definition: Any) -> str:
    """Return the name under which an op that is not the core's is registered.

    Raises:
        ValueError: it is a built-in's, or its namespace is; unless a plugin is being loaded,
            whose failure it is then.
    """
    namespace, _, last = name.rpartition("::")
    if namespace:
        if not (namespace.isidentifier() and last.isidentifier()):
            raise ValueError(f"'{name}' is no name of an op: write PACKAGE::NAME")
        if namespace in index() or namespace in _RESERVED:
            raise ValueError(
                f"op '{name}': '{namespace}' is a name of tangrad's own; choose another"
            )
        return name
    family = index().get(name) or index_of_packages().get(name)
    if family is None:
        return name
    package = definition.module.partition(".")[0]
    cause = (
        f"op '{name}' is built in, by {_module_of(family)}; {_origin(definition)} cannot have the "
        "name"
    )
    remedy = f"Name it '{package}::{name}', to be called as tangrad.ops.{package}.{name}."
    from tangrad.discovery import discovery

    plugin = discovery.acting_plugin()
    if plugin is None:
        raise ValueError(f"{cause}. {remedy}")
    discovery.keep_failure(plugin, f"op '{name}'", cause, remedy)
    return f"{package}::{name}"


_RESERVED = frozenset({"aten", "definition", "prim", "prims", "tangrad", "torch"})


def get(name: str) -> _C.Op:
    """Return an op that its own family file has already defined."""
    return OPS[name]


def find(name: str) -> _C.Op:
    """Return the op of that name, loading its family when needed.

    Raises:
        AttributeError: no definition has that name.
    """
    found = OPS.get(name)
    if found is None:
        family = index().get(name) or index_of_packages().get(name)
        if family is not None:
            load(family)
        found = OPS.get(name)
    if found is None:
        found = _from_plugins(name)
    if found is None:
        from tangrad.discovery.discovery import failed_ops

        raise AttributeError(f"no op named '{name}' is defined{failed_ops()}")
    return found


def find_namespace(name: str) -> Any:
    """Return the ops of a namespace, or None; asks the plugins when needed."""
    if name not in NAMESPACES:
        from tangrad.ops.definition.extension import load_plugin_ops

        load_plugin_ops()
    return NAMESPACES.get(name)


def is_known(name: str) -> bool:
    """Return whether an index or a definition has an op of that name; loads no definition."""
    return name in OPS or name in index() or name in index_of_packages()


def _from_plugins(name: str) -> _C.Op | None:
    from tangrad.ops.definition.extension import load_plugin_ops

    load_plugin_ops()
    return OPS.get(name)


def index() -> dict[str, str]:
    """Return {op name: family} of the core's ops, written when it was built.

    Raises:
        ImportError: it was not.
    """
    global _index
    if _index is None:
        try:
            from tangrad.ops._index import INDEX
        except ImportError as error:
            raise ImportError(
                "the index of the op definitions is missing: core/setup.py writes it"
            ) from error
        _index = INDEX
    return _index


def index_of_packages() -> dict[str, str]:
    """Return {op name: module} of installed packages that list their ops in `tangrad.ops`.

    The modules of tangrad's own packages stand below `tangrad` and may have plain names; of others,
    only names such as `package::op` are taken, so that a later tangrad may use any plain one.
    """
    global _of_packages
    if _of_packages is None:
        from tangrad.discovery import discovery

        if _forget_packages not in discovery.listeners():
            discovery.on_rescan(_forget_packages)
        found: dict[str, str] = {}
        for plugin in discovery.plugins(discovery.OPS):
            ours = plugin.module.startswith("tangrad.")
            try:
                names = {} if plugin.disabled else discovery.load(plugin)
            except discovery.PluginError:
                continue  # kept: `python -m tangrad info` tells of it
            found |= {name: module for name, module in names.items() if ours or "::" in name}
        _of_packages = found
    return _of_packages


def _forget_packages() -> None:
    global _of_packages
    _of_packages = None


def families() -> list[str]:
    """Return the names of the modules that define ops: the core's from `tangrad.ops` on."""
    return sorted({*index().values(), *index_of_packages().values()})


def _module_of(family: str) -> str:
    # The core's own are told by its own index: its first op asks no package.
    return f"tangrad.ops.{family}" if family in index().values() else family


def load(family: str) -> None:
    """Import one family of definitions.

    A thread that asks while another imports the family waits for it, by Python's import lock.
    """
    if family not in _loaded:
        import_module(_module_of(family))
        _loaded.add(family)


def load_all() -> dict[str, _C.Op]:
    """Import every family and return all ops by name."""
    for family in families():
        load(family)
    return OPS


def load_plain() -> dict[str, _C.Op]:
    """Import every family and return the ops whose names are of no package."""
    return {name: op for name, op in load_all().items() if "::" not in name}


def function(name: str) -> _C.Op:
    """Return the op reached as `tangrad.<name>`.

    Raises:
        AttributeError: there is none, or it lives in another namespace.
    """
    found = find(name)
    d = found.definition
    if not d.function or d.namespace is not None or "::" in name:
        raise AttributeError(f"'{name}' is no function of tangrad")
    return found


def method(name: str) -> _C.Op:
    """Return the op reached as `Tensor.<name>`.

    Raises:
        AttributeError: there is none.
    """
    found = find(name)
    d = found.definition
    if not d.is_method or "::" in name:
        raise AttributeError(f"'Tensor' object has no attribute '{name}'")
    return found


_C.set_op_source(find)
