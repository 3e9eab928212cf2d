"""Call the hooks of `hookspecs`, one plugin at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tangrad.discovery import discovery
from tangrad.discovery.discovery import Plugin, PluginError

if TYPE_CHECKING:
    import pluggy

_lock = threading.RLock()
_manager: pluggy.PluginManager | None = None
_members: list[tuple[Plugin, Any]] = []
_called: set[tuple[Any, ...]] = set()


def call_hook(name: str, **arguments: Any) -> list[tuple[Plugin, Any]]:
    """Call a hook of every plugin, keeping what each of them raises as its own failure.

    Args:
        name: name of a function in `tangrad.discovery.hookspecs`.
        **arguments: what the specification says it takes.

    Returns:
        The plugins whose implementation returned something other than None, with what it
        returned, by distribution name.

    Raises:
        AttributeError: no hook has the name.
    """
    manager, members = _ready()
    getattr(manager.hook, name)
    returned = []
    for plugin, implementation in members:
        for value in _call_one(manager, members, plugin, implementation, name, arguments) or ():
            returned.append((plugin, value))
    return returned


def call_hook_once(name: str, **arguments: str) -> None:
    """Call a registering hook of the plugins that were not called with these arguments yet."""
    discovery.refresh()
    if not discovery.names(discovery.HOOKS):
        return  # pluggy costs 6 ms: not for the first tensor of a program without plugins
    with _lock:
        manager, members = _ready()
        for plugin, implementation in members:
            call = (name, tuple(arguments.items()), plugin.identity)
            if call in _called:
                continue
            # Noted before the call, which may itself ask for what is being registered.
            _called.add(call)
            done = _call_one(manager, members, plugin, implementation, name, arguments)
            if done is None and discovery.is_half_imported(plugin):
                _called.discard(call)


def offered(hook: str, name: str) -> tuple[Any, Plugin | None]:
    """Return what a plugin offers under a name, and the plugin; None for both without any.

    Args:
        hook: name of a hook that returns a mapping of names to offers.
        name: one of them.

    Raises:
        RuntimeError: several plugins offer it.
    """
    discovery.refresh()
    if not discovery.names(discovery.HOOKS):
        return None, None
    found = []
    for plugin, offers in call_hook(hook):
        try:
            if name in offers:
                found.append((offers[name], plugin))
        except TypeError as error:
            remedy = f"Report it to the authors of {plugin.distribution}."
            discovery.keep_failure(plugin, f"hook {hook}", error, remedy)
    if len(found) > 1:
        who = " and ".join(f"{plugin.distribution} {plugin.version}" for _, plugin in found)
        raise RuntimeError(
            f"'{name}' is offered by {who} ({hook}): uninstall all but one, or name the others "
            f"in {discovery.DISABLE_VARIABLE}"
        )
    return found[0] if found else (None, None)


def _call_one(
    manager: pluggy.PluginManager,
    members: list[tuple[Plugin, Any]],
    plugin: Plugin,
    implementation: Any,
    name: str,
    arguments: dict[str, Any],
) -> list[Any] | None:
    others = [other for _, other in members if other is not implementation]
    try:
        with discovery.acting(plugin):
            return manager.subset_hook_caller(name, others)(**arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        remedy = f"Report it to the authors of {plugin.distribution}."
        discovery.keep_failure(plugin, f"hook {name}", error, remedy)
        return None


def _ready() -> tuple[pluggy.PluginManager, list[tuple[Plugin, Any]]]:
    global _manager, _members
    with _lock:
        if _manager is not None:
            return _manager, _members
        manager, members = _assemble()
        taken = {plugin.identity for plugin, _ in members}
        left_out = (p for p in discovery.plugins(discovery.HOOKS) if p.identity not in taken)
        if not any(map(discovery.is_half_imported, left_out)):
            _manager, _members = manager, members
        return manager, members


def _assemble() -> tuple[pluggy.PluginManager, list[tuple[Plugin, Any]]]:
    import pluggy

    from tangrad.discovery import hookspecs

    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    members: list[tuple[Plugin, Any]] = []
    for name in discovery.names(discovery.HOOKS):
        member = _register(manager, name)
        if member is not None:
            members.append(member)
    members.sort(key=lambda member: (member[0].distribution, member[0].name))
    return manager, members


def _register(manager: pluggy.PluginManager, name: str) -> tuple[Plugin, Any] | None:
    try:
        plugin = discovery.find(discovery.HOOKS, name)
        if plugin is None:
            return None
        implementation = discovery.load(plugin)
    except PluginError:
        return None  # kept by discovery
    if manager.is_registered(implementation):
        return None  # one object under two names is one plugin
    try:
        manager.register(implementation, name=f"{plugin.distribution}:{plugin.name}")
        _check_hook_names(manager, implementation)
    except Exception as error:
        if manager.is_registered(implementation):
            manager.unregister(implementation)
        remedy = "Its hooks have to match tangrad.discovery.hookspecs."
        discovery.keep_failure(plugin, "hook registration", error, remedy)
        return None
    return plugin, implementation


def _check_hook_names(manager: pluggy.PluginManager, implementation: Any) -> None:
    """Raise if a marked function is no hook of ours: it would silently never be called."""
    for caller in manager.get_hookcallers(implementation) or ():
        if caller.has_spec():
            continue
        if any(not impl.optionalhook for impl in caller.get_hookimpls()):
            raise TypeError(f"there is no hook named {caller.name}")


def _forget() -> None:
    global _manager
    with _lock:
        _manager = None


discovery.on_rescan(_forget)
