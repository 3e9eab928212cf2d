"""What is true of packages that are not installed.

`neutral.json` holds the truthful answers to what programs ask everywhere
(`tangrad.cuda.is_available()` is False), and which package to install for the rest.
"""

from __future__ import annotations

from types import ModuleType

TYPE_CHECKING = False  # importing it from typing would cost more than all of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

ROOT = "tangrad"
PREFIX = ROOT + "."
_REFUSES = "_stands_for_missing"  # the mark of a placeholder, in its class's own names
_table: dict[str, dict[str, Any]] | None = None


class MissingPluginError(RuntimeError):
    """Tell that a name belongs to a package that is not installed, and what to install."""


class MissingPluginAttribute(AttributeError, MissingPluginError):
    """What `tangrad.x` raises, so that `hasattr` is False."""


class MissingPluginModule(ModuleNotFoundError, MissingPluginError):
    """What `import tangrad.x` raises."""


def rows() -> dict[str, dict[str, Any]]:
    """Return what is known of each name; `single` ones are no modules of their packages."""
    global _table
    if _table is None:
        import json
        import os

        path = os.path.join(os.path.dirname(__file__), "neutral.json")
        with open(path, encoding="utf-8") as file:
            table: dict[str, dict[str, Any]] = json.load(file)
        for package, names in table.pop("").items():
            table |= {name: {"extra": package, "placeholder": True} for name in names.split()}
        for package, names in table.pop("+").items():
            table |= {name: {"package": package, "single": True} for name in names.split()}
        for name, row in table.items():  # a row that names no package is of the one of its parent
            extra = table.get(name.rpartition(".")[0], {}).get("extra")
            if extra is not None:
                row.setdefault("extra", extra)
        _table = table
    return _table


def has_answers(name: str) -> bool:
    """Return whether more is known of a name than its package."""
    return bool(set(rows().get(name, {})) - {"extra"})


def holds_answers(name: str) -> bool:
    """Return whether a name stands between `tangrad` and modules that have neutral answers."""
    return any(other.startswith(f"{name}.") and has_answers(other) for other in rows())


def what_brings(row: str, wanted: str) -> str | None:
    """Return what to install for a row such as "command.profile"; None if it is, or no row is.

    Args:
        row: of the table of neutral answers.
        wanted: how the message calls what is missing.
    """
    from tangrad.discovery.discovery import version_of

    package = rows().get(row, {}).get("extra") or rows().get(row, {}).get("package")
    there = not package or (version_of(f"{ROOT}-{package}") and not switched_off(package))
    return None if there else missing_message(row, wanted=wanted)


def missing_message(name: str, attr: str = "", wanted: str = "") -> str:
    """Return why `tangrad.<name>`, or something in it, is not there, and what to install."""
    from tangrad.discovery.discovery import version_of

    wanted = wanted or f"'{'.'.join(filter(None, (ROOT, name, attr)))}'"
    package = rows().get(name, {}).get("package")
    # One that `tangrad` requires, which is not installed with the core alone.
    if package and version_of(f"{ROOT}-{package}") is None:
        return (
            f"{wanted} needs a package that is not installed; "
            f"run: pip install {ROOT}-{package} (or {ROOT}, which brings it)"
        )
    extra = rows().get(name, {}).get("extra")
    off = switched_off(name) or (extra and switched_off(extra))
    if off:
        return f"{wanted} belongs to {off}, which TANGRAD_DISABLE_PLUGINS switches off"
    if not extra:
        return f"{wanted} does not exist: no package of {ROOT} provides it"
    if not is_published(extra):
        return (
            f"{wanted} needs the package {ROOT}[{extra}], which does not exist yet: "
            f"this version of {ROOT} answers for its name only"
        )
    installed = version_of(f"{ROOT}-{extra}")
    if installed is not None:
        return f"{ROOT}-{extra} {installed} has no {wanted}: this version does not bring it"
    return f"{wanted} needs a package that is not installed; run: pip install {ROOT}[{extra}]"


def missing(name: str) -> MissingPluginError:
    """Return the error of using `tangrad.<name>`, which names the package that brings it."""
    namespace, _, attr = name.rpartition(".")
    return MissingPluginError(missing_message(namespace, attr))


def missing_device(name: str, error: Exception) -> RuntimeError:
    """Return the error of a device that cannot be used, which names the package that brings it."""
    return MissingPluginError(f"{missing_message(name)} ({error})")


def is_published(extra: str) -> bool:
    """Return whether the installed core has an extra: its metadata lists those that resolve."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        listed = metadata(ROOT).get_all("Provides-Extra")
    except PackageNotFoundError:
        return True  # run from its sources: what is listed there is not known
    return listed is None or extra in {name.replace("_", "-") for name in listed}


def switched_off(name: str) -> Any:
    """Return an installed plugin of that name that is disabled, or None."""
    from tangrad.discovery import discovery

    groups = (discovery.NAMESPACES, discovery.DEVICES)
    return next(filter(None, (discovery.find_disabled(group, name) for group in groups)), None)


def provider(name: str) -> str:
    """Return what the error of an import names as the module that is missing."""
    # Not the name being imported: `from tangrad import x` swallows an error that has it.
    return f"{ROOT}_{rows().get(name, {}).get('extra') or name}"


def answers_of(name: str, beyond: Callable[[str], Any]) -> ModuleType:
    """Return the module of a package that is not installed; `beyond` finds its other names."""
    entry = rows()[name]
    module = ModuleType(PREFIX + name, missing_message(name))
    module.__path__ = []
    for key, value in entry.get("values", {}).items():
        setattr(module, key, value)
    for key, value in entry.get("returns", {}).items():
        setattr(module, key, _constant(module.__name__, key, value))
    for key in entry.get("contexts", ()):
        setattr(module, key, _null_context(key))
    for key in entry.get("decorators", ()):
        setattr(module, key, _identity)
    for key, members in entry.get("names", {}).items():
        setattr(module, key, _enumeration(module.__name__, key, members))
    for key in " ".join(entry.get("refused", ())).split():
        setattr(module, key, refused(name, key))
    for key, members in entry.get("members", {}).items():
        setattr(module, key, refused(name, key, members))
    import importlib

    for key, path in entry.get("same", {}).items():
        where, _, own = path.rpartition(".")
        setattr(module, key, getattr(importlib.import_module(where), own))
    if "older_amp" in entry:
        # By name, as it stands on what this module is part of.
        importlib.import_module(f"{ROOT}.amp.of_device").show(module, entry["older_amp"])

    module.__getattr__ = beyond  # type: ignore[method-assign]
    return module


def _constant(module: str, name: str, value: Any) -> Callable[..., Any]:
    def neutral(*args: Any, **kwargs: Any) -> Any:
        return value.copy() if isinstance(value, (dict, list)) else value

    neutral.__name__ = neutral.__qualname__ = name
    neutral.__module__ = module
    neutral.__doc__ = f"Return {value!r}: the package that knows better is not installed."
    return neutral


def _null_context(name: str) -> type:
    from contextlib import ContextDecorator

    class NullContext(ContextDecorator):
        """Do nothing, as a context manager or decorator: what it is for is not installed."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.name = args[0] if args else kwargs.get("name")

        def __enter__(self) -> NullContext:
            return self

        def __exit__(self, *exc: object) -> None:
            return None

    NullContext.__name__ = NullContext.__qualname__ = name
    return NullContext


def _enumeration(module: str, name: str, members: list[str]) -> Any:
    """Return names that programs pass on or have as defaults, if they mean nothing here."""
    from enum import Enum

    return Enum(name, members, module=module)


def _identity(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Return the decorated function as it is: there is nothing installed to mark it for."""
    return fn if callable(fn) else _identity


def refused(namespace: str, name: str, members: Sequence[str] = ()) -> type:
    """Return a class that stands for something of a package that is not installed.

    Programs import it whether they use it or not; to call it is a `MissingPluginError`.

    Args:
        namespace: where it is shown, after `tangrad.`.
        name: its name there.
        members: names of values of the class, which programs write as defaults of arguments.
    """

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise MissingPluginError(missing_message(*filter(None, (namespace, name))))

    made: Any = type(
        name,
        (),
        {
            "__new__": refuse,
            "__module__": f"{ROOT}.{namespace}".rstrip("."),
            "__class_getitem__": classmethod(_itself),
            "__repr__": lambda self: f"<{PREFIX}{namespace}.{name}.{self.name}>",
            _REFUSES: name,
        },
    )
    for member in members:
        value = object.__new__(made)
        value.name = member
        setattr(made, member, value)
    return made


def _itself(cls: type, parameters: Any) -> type:
    """Return a placeholder for `Future[Tensor]`, which annotations say."""
    return cls


def is_placeholder(value: object) -> bool:
    """Return whether a value stands for something of a package that is not installed."""
    return isinstance(value, type) and _REFUSES in vars(value)


def foreign_library(path: str) -> tuple[str, dict[str, Any]] | None:
    """Return the namespace and the row of an extension for PyTorch whose ops are known, or None.

    Args:
        path: its file.
    """
    folder, _, file = path.replace("\\", "/").rpartition("/")
    known = f"{folder.rpartition('/')[2]}/{file.partition('.')[0]}"
    return next(
        (
            (name.removeprefix("ops."), row)
            for name, row in rows().items()
            if known in row.get("library", ())
        ),
        None,
    )


def device_flags() -> list[str]:
    """Return the names of devices of which programs ask `Tensor.is_<name>`, installed or not."""
    return rows()["Tensor"]["device_flags"]


def device_methods() -> list[str]:
    """Return the names of devices to which `Tensor.<name>()` moves, installed or not."""
    return rows()["Tensor"]["device_methods"]


def scripts() -> dict[str, str]:
    """Return the commands that PyTorch installs, and the module that each one runs."""
    return {row["script"]: name for name, row in rows().items() if "script" in row}
