"""Discover plugins by the entry points of what is installed.

One scan of `sys.path`, when first needed. `find` picks a plugin by group and name, `load` imports
it, `probing.probe` asks it whether it can work here, each keeping what went wrong as a `Failure`
that belongs to one plugin alone. A name that is not found makes `find` look whether `sys.path`
changed since the scan, so that what was installed meanwhile is found without a restart; `rescan`
also forgets what was uninstalled, and all failures.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tangrad.discovery import API_VERSION, OLDEST_API_VERSION, VERSION

if TYPE_CHECKING:
    from tangrad.discovery.metadata import EntryPoint

DEVICES = "tangrad.devices"
NAMESPACES = "tangrad.namespaces"
HOOKS = "tangrad.plugins"
NAMES = "tangrad.names"
OPS = "tangrad.ops"
GROUPS = (
    DEVICES,
    NAMESPACES,
    NAMES,
    OPS,
    "tangrad.compilers",
    "tangrad.collectives",
    "tangrad.exporters",
    "tangrad.random_engines",
    HOOKS,
)
# The others may be needed for the first tensor, or to compile, which would take as long again,
# most of it for modules that stevedore loads.
_BY_STEVEDORE = frozenset({"tangrad.collectives", "tangrad.exporters"})

# Parts of tangrad in packages of their own: they state no version of the interface, and are
# switched off by name alone.
_WITHOUT_VERSION = frozenset({NAMES, OPS})

DISABLE_VARIABLE = "TANGRAD_DISABLE_PLUGINS"


class Plugin:
    """Describe one entry point of an installed distribution.

    Attributes:
        group: entry-point group, one of `GROUPS`.
        name: what users call it, such as the device type.
        value: `module` or `module:attribute`.
        distribution: name of the distribution that brings it.
        version: version of that distribution.
        disabled: whether TANGRAD_DISABLE_PLUGINS switches it off.
    """

    __slots__ = ("disabled", "distribution", "group", "name", "value", "version")

    def __init__(
        self, entry_point: EntryPoint, distribution: str, version: str, disabled: bool = False
    ) -> None:
        self.group = entry_point.group
        self.name = entry_point.name
        self.value = entry_point.value
        self.distribution = distribution
        self.version = version
        self.disabled = disabled

    @property
    def module(self) -> str:
        """Return the name of the module that the entry point names."""
        return self.value.partition(":")[0].strip()

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """Return what tells this plugin from every other, across scans."""
        return (self.group, self.name, self.distribution, self.version, self.value)

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.group}: {self.name} = {self.value})"


class Failure:
    """Keep why a plugin, or one hook of it, cannot be used.

    Attributes:
        plugin: whose failure it is.
        stage: what was being done: "import", "API version", "name", "probe", "open", "hook ...".
        cause: one line.
        remedy: what the user can do about it.
        traceback: the original traceback as text, empty if nothing was raised.
        missing: the plugin is well; this machine lacks what it needs.
    """

    __slots__ = ("cause", "missing", "plugin", "remedy", "stage", "traceback")

    def __init__(
        self, plugin: Plugin, stage: str, cause: str, remedy: str, traceback: str = ""
    ) -> None:
        self.plugin = plugin
        self.stage = stage
        self.cause = cause
        self.remedy = remedy
        self.traceback = traceback
        self.missing = False

    def __str__(self) -> str:
        return f"{self.plugin} failed at {self.stage}: {self.cause}. {self.remedy}"


class PluginError(RuntimeError):
    """Tell that an installed plugin cannot be used; `failure` holds all that is known."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure
        if failure.traceback:
            self.add_note("What the plugin raised:\n" + failure.traceback)


class _Scan:
    """Hold what one look at the installed distributions found, and what was made of it."""

    __slots__ = (
        "distributions",
        "enabled",
        "failures",
        "fingerprint",
        "loaded",
        "names",
        "plugins",
    )

    def __init__(self) -> None:
        self.fingerprint = _fingerprint()
        self.plugins: dict[tuple[str, str], list[Plugin]] = {}
        self.failures: dict[tuple[tuple[str, ...], str], Failure] = {}
        self.loaded: dict[tuple[str, ...], Any] = {}
        self.distributions: dict[str, str] = {}
        self.names: dict[str, frozenset[str]] = {}  # by group, of those that were asked for
        self.enabled: dict[str, list[str]] = {}  # likewise, sorted

    def summary(self) -> set[tuple[Any, ...]]:
        """Return what tells two scans apart."""
        claims = (plugin for found in self.plugins.values() for plugin in found)
        return {(*plugin.identity, plugin.disabled) for plugin in claims}


_lock = threading.RLock()
_of_thread = threading.local()
_scan: _Scan | None = None
_listeners: list[Callable[[], None]] = []


def find(group: str, name: str) -> Plugin | None:
    """Return the plugin of that name, or None; raise if two distributions claim the name.

    Args:
        group: one of `GROUPS`.
        name: name of the entry point.

    Raises:
        PluginError: several distributions register different values under the name.
    """
    if (group, name) not in current().plugins:
        refresh()
    claims = [p for p in current().plugins.get((group, name), ()) if not p.disabled]
    if not claims:
        return None
    if len({p.value for p in claims}) > 1:
        raise PluginError(_keep_conflict(claims))
    return claims[0]


def find_disabled(group: str, name: str) -> Plugin | None:
    """Return an installed plugin of that name that TANGRAD_DISABLE_PLUGINS switched off."""
    return next((p for p in current().plugins.get((group, name), ()) if p.disabled), None)


def known_names(group: str) -> frozenset[str]:
    """Return the names of a group as far as they are known without a scan made for it."""
    if _scan is None:
        return frozenset()
    found = _scan.names.get(group)
    if found is None:
        found = frozenset(name for kind, name in _scan.plugins if kind == group)
        _scan.names[group] = found
    return found


def names(group: str) -> list[str]:
    """Return the sorted names of the enabled plugins of a group."""
    scan = current()
    found = scan.enabled.get(group)
    if found is None:
        found = scan.enabled[group] = sorted({p.name for p in plugins(group) if not p.disabled})
    return [*found]


# Under a name that says more, for who imports it from `tangrad.plugin`.
plugin_names = names


def plugins(group: str | None = None) -> list[Plugin]:
    """Return the plugins of a group, or all, sorted by group, distribution name and name."""
    found = (p for claims in current().plugins.values() for p in claims)
    chosen = (p for p in found if group is None or p.group == group)
    return sorted(chosen, key=lambda p: (p.group, p.distribution, p.name, p.value))


def load(plugin: Plugin) -> Any:
    """Import what the entry point names, once, and check the API version it states.

    Returns:
        The module or attribute.

    Raises:
        PluginError: the import failed, now or before, or the API version does not fit.
    """
    scan = current()
    if plugin.identity in scan.loaded:
        return scan.loaded[plugin.identity]
    raise_kept(plugin, "import")
    raise_kept(plugin, "API version")
    # No lock is held: a module being imported by another thread may come here too, and Python's
    # own import lock already makes the import happen once.
    try:
        with acting(plugin):
            loaded = _import(plugin)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        remedy = _import_remedy(plugin, error)
        raise PluginError(keep_failure(plugin, "import", error, remedy)) from error
    problem = _api_problem(plugin, loaded)
    if problem is not None:
        raise PluginError(keep_failure(plugin, "API version", *problem))
    return scan.loaded.setdefault(plugin.identity, loaded)


def load_by_name(group: str, name: str) -> Any:
    """Load the plugin of that name from a group of one-of-many plugins.

    Args:
        group: such as `tangrad.compilers`, `tangrad.collectives` or `tangrad.exporters`.
        name: name of the entry point.

    Raises:
        LookupError: no installed plugin has the name; the message lists those that are.
        PluginError: the plugin is broken, or two distributions claim the name.
    """
    plugin = find(group, name)
    if plugin is None:
        kind = group.rpartition(".")[2]
        known = ", ".join(names(group)) or "none"
        off = find_disabled(group, name)
        reason = f"; {off.distribution} is switched off by {DISABLE_VARIABLE}" if off else ""
        raise LookupError(f"no '{name}' among the installed {kind} ({known}){reason}")
    return load(plugin)


def keep_failure(plugin: Plugin, stage: str, cause: str | BaseException, remedy: str) -> Failure:
    """Keep why a plugin failed, for `tangrad info` and for who uses it later; returns it."""
    text = ""
    if isinstance(cause, BaseException):
        import traceback

        text = "".join(traceback.format_exception(cause))
        cause = traceback.format_exception_only(cause)[0].strip()
    failure = Failure(plugin, stage, cause.rstrip("."), remedy, text)
    if stage == "probe" or not is_half_imported(plugin):
        current().failures[(plugin.identity, stage)] = failure
    return failure


def is_half_imported(plugin: Plugin) -> bool:
    """Return whether a plugin's module, or a package above it, is being imported right now.

    What fails then may work at its next use, so it is no failure of the plugin.
    """
    parts = plugin.module.split(".")
    modules = (sys.modules.get(".".join(parts[:n])) for n in range(1, len(parts) + 1))
    return any(getattr(getattr(m, "__spec__", None), "_initializing", False) for m in modules)


@contextmanager
def acting(plugin: Plugin) -> Iterator[None]:
    """Note, for this thread, which plugin's code runs in the body."""
    before = acting_plugin()
    _of_thread.plugin = plugin
    try:
        yield
    finally:
        _of_thread.plugin = before


def acting_plugin() -> Plugin | None:
    """Return the plugin that is being loaded or called in this thread, or None."""
    return getattr(_of_thread, "plugin", None)


def raise_kept(plugin: Plugin, stage: str) -> None:
    """Raise PluginError if the plugin failed at this stage before."""
    failure = current().failures.get((plugin.identity, stage))
    if failure is not None:
        raise PluginError(failure)


def failures() -> list[Failure]:
    """Return all kept failures, sorted by distribution, group and name."""
    return sorted(
        current().failures.values(),
        key=lambda f: (f.plugin.distribution, f.plugin.group, f.plugin.name, f.stage),
    )


def failed_ops() -> str:
    """Return what the error of an unknown op adds: which packages failed to bring theirs, and why.

    Nothing is scanned for it: a name that is unknown was asked of the plugins before.
    """
    stages = ("import", "API version", "hook registration", "hook tangrad_register_ops")
    failed = () if _scan is None else failures()
    told = (f for f in failed if f.plugin.group in (HOOKS, OPS) and f.stage in stages)
    return "".join(
        f"; {f.plugin.distribution} {f.plugin.version} failed at {f.stage}: {f.cause}" for f in told
    )


def check_all() -> None:
    """Load every enabled plugin, so that `failures` tells about each of them."""
    refresh()
    for plugin in plugins():
        if plugin.disabled:
            continue
        try:
            find(plugin.group, plugin.name)
            load(plugin)
        except PluginError:
            continue  # kept already


def distributions() -> dict[str, str]:
    """Return name -> version of the distributions that bring plugins."""
    return dict(sorted(current().distributions.items()))


def version_of(distribution: str) -> str | None:
    """Return the installed version of any distribution, or None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def rescan() -> None:
    """Look at the installed distributions again; forget failures and what was uninstalled.

    Objects of an uninstalled plugin that a program holds keep working: Python never unloads
    their code. An opened device stays open for the same reason.
    """
    _adopt(_fresh_look())


def refresh() -> None:
    """Rescan if plugins were installed or removed since the last scan; costs some 20 us if not."""
    if current().fingerprint == _fingerprint():
        return
    scan = _fresh_look()
    if scan.summary() != current().summary():
        _adopt(scan)
    else:
        # Something else in those folders changed, such as a file that the program wrote.
        current().fingerprint = scan.fingerprint


def _fresh_look() -> _Scan:
    import importlib

    # Directory listings are cached by modification time, which has the file system's grain.
    importlib.invalidate_caches()
    return _look()


def _adopt(scan: _Scan) -> None:
    global _scan
    _scan = scan
    for listener in _listeners:
        listener()


def on_rescan(listener: Callable[[], None]) -> None:
    """Have a function called after every `rescan`, to forget what it made of the previous one."""
    _listeners.append(listener)


def listeners() -> tuple[Callable[[], None], ...]:
    """Return the functions that are called after every `rescan`."""
    return tuple(_listeners)


def current() -> _Scan:
    """Return the scan in force, making the first one if there is none."""
    global _scan
    if _scan is None:
        with _lock:
            if _scan is None:
                _scan = _look()
    return _scan


def _look() -> _Scan:
    from tangrad.discovery.metadata import identify

    scan = _Scan()
    disabled, of_core = _disabled_names(), VERSION.split(".")
    seen: set[str] = set()
    for text, distribution in _distributions_with_plugins():
        name, version, wanted = identify(distribution)
        if _normalized(name) in seen:
            continue  # shadowed by an earlier entry of sys.path, as its modules are
        seen.add(_normalized(name))
        scan.distributions[name] = version
        for entry_point in _entry_points(scan, name, version, text):
            everything = set() if entry_point.group in _WITHOUT_VERSION else {"*"}
            named = {_normalized(name), _normalized(entry_point.name)}
            off = bool(disabled & (everything | named))
            plugin = Plugin(entry_point, name, version, off)
            scan.plugins.setdefault((plugin.group, plugin.name), []).append(plugin)
            if wanted is not None and wanted != of_core[: len(wanted)]:
                scan.failures[(plugin.identity, "API version")] = _of_another_minor(plugin, wanted)
    for claims in scan.plugins.values():
        claims.sort(key=lambda p: (p.distribution, p.value))
    return scan


def _distributions_with_plugins() -> Iterator[tuple[str, Any]]:
    from tangrad.discovery.metadata import distributions

    for distribution in distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
        except (OSError, UnicodeDecodeError):
            continue  # unreadable: nothing can be known about it, not even whether it is ours
        # Parsing the metadata of everything installed would take most of the scan's time.
        if "[tangrad." in text:
            yield text, distribution


def _entry_points(scan: _Scan, name: str, version: str, text: str) -> list[EntryPoint]:
    from tangrad.discovery.metadata import EntryPoint, entry_points

    try:
        return [ep for ep in entry_points(text) if ep.group in GROUPS]
    except ValueError as error:
        group = next((g for g in GROUPS if f"[{g}]" in text), HOOKS)
        broken = Plugin(EntryPoint("entry_points.txt", "unreadable", group), name, version)
        failure = Failure(broken, "metadata", f"entry_points.txt: {error}", _reinstall(broken))
        scan.failures[(broken.identity, "metadata")] = failure
        return []


def _import(plugin: Plugin) -> Any:
    if plugin.group in _BY_STEVEDORE:
        return _import_by_stevedore(plugin)
    from importlib import import_module

    loaded = import_module(plugin.module)
    for attribute in filter(None, plugin.value.partition(":")[2].strip().split(".")):
        loaded = getattr(loaded, attribute)
    return loaded


def _import_by_stevedore(plugin: Plugin) -> Any:
    from importlib.metadata import EntryPoint

    from stevedore.driver import DriverManager

    class ScannedDriver(DriverManager):
        """Load the entry point that the scan found.

        stevedore looks entry points up in a cache on disk, keyed by modification times, that
        has lost freshly installed ones (and in a cache per process that never forgets). Giving
        it the entry point goes round both.
        """

        def list_entry_points(self) -> list[EntryPoint]:
            return [EntryPoint(plugin.name, plugin.value, plugin.group)]

    return ScannedDriver(plugin.group, plugin.name).driver


def _api_problem(plugin: Plugin, loaded: Any) -> tuple[str, str] | None:
    """Return cause and remedy if the stated API version does not fit.

    It is that of the object, of its module or of the package around: one line for a distribution.
    """
    if plugin.group in _WITHOUT_VERSION:
        return None
    modules = (plugin.module, plugin.module.partition(".")[0])
    places = (loaded, *map(sys.modules.get, modules))
    stated = next((place.API for place in places if hasattr(place, "API")), None)
    if not isinstance(stated, int) or isinstance(stated, bool):
        cause = f"module {plugin.module} states no API version (an integer named API)"
        return cause, f"Its author has to add API = {API_VERSION}; {_upgrade(plugin)}"
    if stated > API_VERSION:
        cause = f"made for plugin API {stated}, this tangrad offers {API_VERSION}"
        return cause, "Run: pip install --upgrade tangrad"
    if stated < OLDEST_API_VERSION:
        cause = f"made for plugin API {stated}, this tangrad needs at least {OLDEST_API_VERSION}"
        return cause, _upgrade(plugin)
    return None


def _of_another_minor(plugin: Plugin, wanted: list[str]) -> Failure:
    """Return the failure of a package that was made for another minor version of the core."""
    cause = f"made for tangrad-core {'.'.join(wanted)}, and tangrad-core {VERSION} is installed"
    older = [int(n) for n in wanted if n.isdigit()] < [int(n) for n in VERSION.split(".")]
    remedy = f"Run: pip install --upgrade tangrad {plugin.distribution}"
    if older:
        remedy += f" (or, to stay: pip install 'tangrad-core~={'.'.join(wanted)}.0')"
    return Failure(plugin, "API version", cause, remedy)


def _import_remedy(plugin: Plugin, error: BaseException) -> str:
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if missing and (plugin.module == missing or plugin.module.startswith(missing + ".")):
        return (
            "It is half uninstalled: its metadata is there, its module is not. "
            f"{_reinstall(plugin)} (or: pip uninstall {plugin.distribution})"
        )
    if missing:
        return f"It needs module {missing}, which is not installed: install it."
    return _reinstall(plugin)


def _reinstall(plugin: Plugin) -> str:
    return f"Run: pip install --force-reinstall {plugin.distribution}"


def _upgrade(plugin: Plugin) -> str:
    return f"Run: pip install --upgrade {plugin.distribution}"


def _keep_conflict(claims: list[Plugin]) -> Failure:
    who = " and ".join(f"{p.distribution} {p.version} ({p.value})" for p in claims)
    cause = f"the name '{claims[0].name}' in {claims[0].group} is claimed by {who}"
    remedy = f"Uninstall one of them, or name it in {DISABLE_VARIABLE}."
    kept = [keep_failure(plugin, "name", cause, remedy) for plugin in claims]
    return kept[0]


def _disabled_names() -> set[str]:
    text = os.environ.get(DISABLE_VARIABLE, "").strip()
    if text.lower() in ("1", "true", "all"):
        return {"*"}
    if text.lower() in ("", "0", "false"):
        return set()
    return {_normalized(name) for name in text.split(",") if name.strip()}


def _normalized(name: str) -> str:
    """Return a distribution's name in the form in which two spellings of it are equal."""
    flat = name.strip().lower().replace("_", "-").replace(".", "-")
    return "-".join(part for part in flat.split("-") if part)


def _fingerprint() -> tuple[Any, ...]:
    """Return what changes when something is installed or removed; a few microseconds."""
    return (os.environ.get(DISABLE_VARIABLE), *((entry, _modified(entry)) for entry in sys.path))


def _modified(entry: str) -> int:
    try:
        return os.stat(entry or ".").st_mtime_ns
    except OSError:
        return -1
