"""Answer for `tangrad.<name>` where the core has no module of that name.

A feature package `tangrad_x` registers itself under a name in the entry-point group
`tangrad.namespaces` (dotted names too: `ao.quantization`), or is named as the `module` of a
device driver. `tangrad.x` and `import tangrad.x` are then that very module, not a copy: the name
in `sys.modules` is an alias, and so are those of its submodules.

A package that is installed under its public path, such as `tangrad/distributions`, and one that
brings single names list them in the group `tangrad.names`: what `tangrad.<name>` is, as `module`
or `module:attribute`.

Where nothing is installed, `neutral` has the answers.

Installing the import hook costs two small objects; `import tangrad` pays for nothing else.
"""

from __future__ import annotations

import sys
from types import ModuleType

from tangrad.discovery import neutral
from tangrad.discovery.neutral import PREFIX, MissingPluginAttribute, MissingPluginModule

TYPE_CHECKING = False  # importing it from typing would cost more than all of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# Names in sys.modules that stand for modules of plugins or for neutral answers, all forgotten by
# a rescan; the value is the module.
_aliases: dict[str, ModuleType] = {}

# {public name: module}: modules of the core that stand elsewhere than where PyTorch shows them.
own_places: dict[str, str] = {}
# Modules of the core, for which no plugin is looked for.
own_names: frozenset[str] = frozenset()


class BrokenPluginAttribute(AttributeError, RuntimeError):
    """What `tangrad.x` raises if its plugin is installed and broken."""


class BrokenPluginModule(ImportError, RuntimeError):
    """What `import tangrad.x` raises if its plugin is installed and broken."""


def resolve(name: str) -> Any:
    """Return the module shown as `tangrad.<name>`; call this from a module's `__getattr__`.

    A few names are no modules, but stand for a value of a package that is not installed.

    Args:
        name: the name after `tangrad.`, which may have dots.

    Raises:
        AttributeError: nobody knows the name; or its package is not installed
            (`MissingPluginAttribute`); or its plugin is broken (`BrokenPluginAttribute`).
    """
    full = PREFIX + name
    if full in _aliases:
        return _aliases[full]
    if is_listed(name):
        return _listed(name)
    if "placeholder" in neutral.rows().get(name, ()):
        parent, _, last = name.rpartition(".")
        return neutral.refused(parent, last)
    if _kind(name) is not None:
        import importlib

        try:
            return importlib.import_module(full)
        except BrokenPluginModule as error:
            raise BrokenPluginAttribute(str(error)) from error
        except MissingPluginModule as error:
            raise MissingPluginAttribute(str(error)) from None
    parent, _, last = full.rpartition(".")
    told = f"module '{parent}' has no attribute '{last}'"
    if not last.startswith("_"):  # for those that introspection asks for, no scan is made
        from tangrad.discovery.discovery import failed_ops

        told += failed_ops()
    raise AttributeError(told)


def is_listed(name: str) -> bool:
    """Return whether a package lists `tangrad.<name>` among the names that it brings."""
    if name.startswith("__"):  # all kinds of introspection ask for these: no scan
        return False
    from tangrad.discovery import discovery

    return (discovery.NAMES, name) in discovery.current().plugins


def _listed(name: str) -> Any:
    from tangrad.discovery import discovery

    try:
        return discovery.load_by_name(discovery.NAMES, name)
    except discovery.PluginError as error:
        message = f"'{PREFIX}{name}' cannot be used: {error}"
        raise BrokenPluginAttribute(message) from error


def attribute_of(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package of the core below which plugins may have modules.

    Args:
        package: its `__name__`, such as `tangrad.nn`.
    """
    prefix = package.removeprefix(PREFIX) + "."
    return lambda name: resolve(prefix + name)


def submodules_on_demand(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` that imports a package's modules when they are first asked for.

    Args:
        package: its `__name__`.
    """

    def attribute(name: str) -> Any:
        import importlib
        import importlib.util

        full = f"{package}.{name}"
        if name.startswith("_") or importlib.util.find_spec(full) is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return importlib.import_module(full)

    return attribute


def names() -> list[str]:
    """Return the top-level names that installed plugins bring, for `dir(tangrad)`."""
    from tangrad.discovery import discovery

    brought = [*discovery.names(discovery.NAMESPACES), *discovery.names(discovery.NAMES)]
    return sorted({name.partition(".")[0] for name in brought})


def install() -> None:
    """Have `import tangrad.<name>` ask the plugins after everything else failed."""
    if not any(isinstance(finder, _PluginFinder) for finder in sys.meta_path):
        sys.meta_path.append(_PluginFinder())
        sys.meta_path.insert(0, _Guard())


class _Guard:
    """Refuse what is installed beside the core's files and was made for another minor version.

    Python finds such a module by itself, so it is looked at before: first in line.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        if not fullname.startswith(PREFIX):
            return
        name = fullname.removeprefix(PREFIX)
        # A scan is made for what may be a package's alone: not for modules of the core.
        if _known(name) if "." in name else name not in own_names and is_listed(name):
            from tangrad.discovery import discovery

            for plugin in discovery.current().plugins[discovery.NAMES, name]:
                try:
                    discovery.raise_kept(plugin, "API version")
                except discovery.PluginError as error:
                    message = f"'{fullname}' cannot be used: {error}"
                    raise BrokenPluginModule(message) from None


def _known(name: str) -> bool:
    """Return whether the scan, if there was one, found a package that lists a name."""
    discovery = sys.modules.get("tangrad.discovery.discovery")
    return discovery is not None and name in discovery.known_names(discovery.NAMES)


class _PluginFinder:
    """Find `tangrad.<name>` for plugins; last in line, so that real modules never come here."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if not fullname.startswith(PREFIX):
            return None
        name = fullname.removeprefix(PREFIX)
        if name in own_places:
            return _spec(fullname, lambda: _own(name), _Loader)
        found = _elsewhere(fullname)
        if found is not None:
            return found
        parent, _, last = name.rpartition(".")
        produce = _kind(name)
        if produce is _missing:
            _missing(name)
        if produce is not None:
            return _spec(fullname, lambda: produce(name))
        if _is_neutral(parent):
            message = neutral.missing_message(parent, last)
            raise MissingPluginModule(message, name=neutral.provider(parent))
        return None


def _elsewhere(fullname: str) -> Any:
    """Return the spec of a module below another folder `tangrad` of `sys.path`, or None.

    So stand parts of tangrad that are installed from their sources, each in its own folder.
    """
    import os
    from importlib.machinery import PathFinder

    parents = fullname.split(".")[:-1]
    folders = [os.path.join(entry, *parents) for entry in sys.path]
    return PathFinder.find_spec(fullname, [folder for folder in folders if os.path.isdir(folder)])


class _SubmoduleFinder:
    """Find `tangrad.x.y` as `tangrad_x.y` below an alias; first in line.

    The normal finders would find the same file through the package's path, and run it twice.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        parent, _, last = fullname.rpartition(".")
        package = _aliases.get(parent)
        if package is None or not hasattr(package, "__path__"):
            return None
        import importlib
        import importlib.util

        real = f"{package.__name__}.{last}"
        if real == fullname or importlib.util.find_spec(real) is None:
            return None
        return _spec(fullname, lambda: importlib.import_module(real))


class _Loader:
    """Put an existing module under a second name."""

    def __init__(self, produce: Callable[[], ModuleType]) -> None:
        self.produce = produce

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system returns what is in sys.modules afterwards. Returning the module from
        # create_module instead would overwrite its __spec__.
        sys.modules[module.__name__] = self.produce()


class _AliasLoader(_Loader):
    """Put a module of a plugin, or one made for it, under a name that a rescan forgets."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _aliases[module.__name__] = sys.modules[module.__name__]
        _prepare_for_aliases()

    def get_code(self, name: str) -> Any:
        """Return the code that `python -m tangrad.<name>` runs: a package's is its `__main__`."""
        import importlib.util

        spec: Any = self.produce().__spec__
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{spec.name}.__main__")
        return spec.loader.get_code(spec.name) if spec is not None else None


def _spec(fullname: str, produce: Callable[[], ModuleType], loader: Any = _AliasLoader) -> Any:
    from importlib.machinery import ModuleSpec

    return ModuleSpec(fullname, loader(produce))


def _own(name: str) -> ModuleType:
    import importlib

    return importlib.import_module(PREFIX + own_places[name])


def _prepare_for_aliases() -> None:
    """Bring what only a process with aliases needs: the submodule finder, forgetting."""
    if any(isinstance(finder, _SubmoduleFinder) for finder in sys.meta_path):
        return
    from tangrad.discovery import discovery

    sys.meta_path.insert(0, _SubmoduleFinder())
    discovery.on_rescan(_forget)


def _kind(name: str) -> Callable[[str], ModuleType] | None:
    """Return the function that produces the module of that name, or None."""
    last = name.rpartition(".")[2]
    # All kinds of introspection ask for private names: they must not start a scan, and no package
    # may register them, but for those of PyTorch that have neutral answers.
    if last.startswith("__") or (last.startswith("_") and name not in neutral.rows()):
        return None
    from tangrad.discovery import discovery

    try:
        installed = discovery.find(discovery.NAMESPACES, name) is not None
    except discovery.PluginError:
        installed = True
    if installed or _shown_by_device(name) is not None:
        return _from_plugin
    if _has_children(name):
        return _intermediate
    entry = neutral.rows().get(name)
    if entry is not None and "device_flags" not in entry:  # that one is of a class, no module
        answers = neutral.has_answers(name) or neutral.holds_answers(name)
        # A part that `tangrad` requires has no answers of its own, whatever names below it have.
        return _neutral_module if answers and "package" not in entry else _missing
    return None if neutral.switched_off(name) is None else _missing


def _from_plugin(name: str) -> ModuleType:
    from tangrad.discovery import discovery

    plugin = None
    try:
        plugin = discovery.find(discovery.NAMESPACES, name)
        module = _device_module(name) if plugin is None else discovery.load(plugin)
        if not isinstance(module, ModuleType):
            raise TypeError(f"a namespace has to be a module, not {module!r}; see {plugin}")
    except Exception as error:
        passing = plugin is not None and discovery.is_half_imported(plugin)
        return _neutral_or_raise(name, error, passing)
    if _has_children(name) or any(other.startswith(f"{name}.") for other in neutral.rows()):
        _show_children(name, module)
    return module


def _neutral_or_raise(name: str, error: Exception, passing: bool) -> ModuleType:
    """Return neutral answers in place of a broken plugin, telling so; else raise."""
    if passing or not neutral.has_answers(name):
        raise BrokenPluginModule(f"'{PREFIX}{name}' cannot be used: {error}") from error
    import warnings

    warnings.warn(
        f"'{PREFIX}{name}' answers as if it were not installed, for its plugin is broken: {error}",
        RuntimeWarning,
        stacklevel=2,
    )
    return _neutral_module(name, broken=str(error))


def _shown_by_device(name: str) -> Any:
    """Return what a device driver says is to be shown under the device's name."""
    from tangrad.discovery import discovery

    try:
        plugin = discovery.find(discovery.DEVICES, name)
        return plugin and getattr(discovery.load(plugin), "module", None)
    except discovery.PluginError:
        return None


def _device_module(name: str) -> Any:
    shown = _shown_by_device(name)
    if not isinstance(shown, str):
        return shown
    import importlib

    return importlib.import_module(shown)


def _has_children(name: str) -> bool:
    from tangrad.discovery import discovery

    return any(other.startswith(name + ".") for other in discovery.names(discovery.NAMESPACES))


def _intermediate(name: str) -> ModuleType:
    """Return an empty package that stands between `tangrad` and a dotted name."""
    module = ModuleType(PREFIX + name, f"Hold the packages that plugins bring below {name}.")
    module.__path__ = []
    module.__getattr__ = attribute_of(PREFIX + name)  # type: ignore[method-assign]
    return module


def _show_children(name: str, module: ModuleType) -> None:
    """Let a plugin's module answer for names that other plugins register below its own."""
    own = vars(module).get("__getattr__")
    child = attribute_of(PREFIX + name)

    def attribute(attr: str) -> Any:
        if own is not None:
            try:
                return own(attr)
            except AttributeError:
                pass
        return child(attr)

    module.__getattr__ = attribute  # type: ignore[method-assign]
    if not hasattr(module, "__path__"):
        module.__path__ = []


def _neutral_module(name: str, broken: str = "") -> ModuleType:
    return neutral.answers_of(name, lambda attr: _beyond_neutral(name, attr, broken))


def _beyond_neutral(name: str, attr: str, broken: str) -> Any:
    """Return what a neutral module does not know: a child, or what was installed meanwhile."""
    if _kind(f"{name}.{attr}") is not None:
        return resolve(f"{name}.{attr}")
    if attr.startswith("_"):
        raise AttributeError(f"module '{PREFIX}{name}' has no attribute '{attr}'")
    if broken:
        raise BrokenPluginAttribute(f"'{PREFIX}{name}.{attr}' cannot be used: {broken}")
    if _kind(name) is _from_plugin:
        _forget()
        return getattr(resolve(name), attr)
    raise MissingPluginAttribute(neutral.missing_message(name, attr))


def _missing(name: str) -> ModuleType:
    raise MissingPluginModule(neutral.missing_message(name), name=neutral.provider(name))


def _is_neutral(name: str) -> bool:
    """Return whether the module in use under that name holds neutral answers."""
    module = _aliases.get(PREFIX + name)
    return module is not None and module.__name__ == PREFIX + name and name in neutral.rows()


def _forget() -> None:
    """Drop every alias, so that the next use asks what is installed now."""
    dropped = dict(_aliases)
    _aliases.clear()
    for name, module in dropped.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
        parent, _, last = name.rpartition(".")
        # A plugin's own package keeps its submodules.
        holder = None if parent in dropped else sys.modules.get(parent)
        if holder is not None and vars(holder).get(last) is module:
            delattr(holder, last)
