"""Specify the hooks of the entry-point group `tangrad.plugins`.

A plugin is a module (or object) that states `API` and defines some of these functions, each
marked with `tangrad.plugin.hookimpl`:

    from tangrad.plugin import hookimpl

    API = 1

    @hookimpl
    def tangrad_register_ops():
        from my_package import ops  # importing the definitions registers them

Each plugin is called by itself: what it raises is kept as its own failure, shown by
`python -m tangrad info`, and the others are called all the same. The order of calls is by
distribution name and means nothing; `tryfirst`, `trylast` and wrappers therefore have no effect
across plugins. No hook is on the path of an op. The registering hooks are called at most once in
a process for each plugin (`tangrad_register_kernels` once for each device).
"""

# A specification has no body: pluggy reads its name and parameters only.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pluggy

PROJECT = "tangrad"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def tangrad_register_ops() -> None:
    """Define ops with `tangrad.plugin.pointwise`, `reduction`, `op` and so on.

    Called by the op table, when a name is asked for that the core's index does not know, and by
    `python -m tangrad op`; usually all it does is to import a module of definitions, for defining
    an op registers it. Nothing is returned. Name ops `package::op`, which a later core never
    takes; they are called as `tangrad.ops.package.op`. A plain name that is built in is a failure
    of the plugin, whose op is then shown as `tangrad.ops.package.op` alone; one that another
    plugin has is an error of the plugin that came second.
    """


@hookspec
def tangrad_register_kernels(device: str) -> None:
    """Register kernels for one device with `tangrad.plugin.register_kernel`.

    Called by the device registry right after a device has opened and its driver has registered
    its own kernels, so a kernel given here replaces the driver's. Nothing is returned; a plugin
    returns at once for devices it has nothing for.

    Args:
        device: the device type, such as "cpu".
    """


@hookspec
def tangrad_register_dtypes() -> None:
    """Register dtypes with `tangrad.plugin.register_dtype`.

    Called when `tangrad.<name>` or a checkpoint names a dtype that is not registered, and by
    `python -m tangrad info`. Nothing is returned.
    """


@hookspec
def tangrad_register_layouts() -> None:
    """Register layouts with `tangrad.plugin.register_layout`.

    Called when `tangrad.<name>` or a checkpoint names a layout that is not registered, and by
    `python -m tangrad info`. Nothing is returned.
    """


@hookspec
def tangrad_register_formats() -> Mapping[str, Any]:
    """Return file formats for `tangrad.save` and `tangrad.load`.

    Called when a path is saved to or loaded from whose suffix is none of PyTorch's (`.pt`,
    `.pth`, `.bin`, `.ckpt`, `.tar`, `.pkl`). Without a format of that suffix the file is one of
    PyTorch's.

    Returns:
        Suffix, with its dot, to an object with `save(obj, file)` and `load(file, map_location)`.
        Its `describe(file)`, if it has one, returns {what: value} for `python -m tangrad inspect`.
    """


@hookspec
def tangrad_register_interceptors() -> Mapping[str, Any]:
    """Return interceptors that users may switch on by name.

    Called by `tangrad.plugin.intercepted(name)`. An interceptor is not active before somebody
    enters it. C functions come by `push_observer` of the C function table instead.

    Returns:
        Name to a callable without arguments that returns an interceptor: an object with
        `enter(op)`, called before each op of the thread, and `leave(op, token)`, called after it
        with what `enter` returned; `tangrad.plugin.push_observer` tells what else it may have.
    """


@hookspec
def tangrad_report_environment() -> Mapping[str, object]:
    """Return facts about the machine that help to understand a bug report.

    Called by `python -m tangrad info`.

    Returns:
        Short name to value, such as {"CUDA driver": "570.86"}; values are shown by `str`.
    """


@hookspec
def tangrad_add_test_cases() -> Iterable[Any]:
    """Return cases for the conformance suite beyond the samples of the op definitions.

    Called by the suite while it collects; each case then runs for every device of the run.

    Returns:
        Callables that take a device's name and raise AssertionError if it does not conform; the
        callable's `__name__` names the case.
    """


@hookspec
def tangrad_add_cli(commands: Any) -> None:
    """Add subcommands to `python -m tangrad`.

    Called when the command line names none of the core's own commands, or asks for help. The
    core's commands cannot be replaced.

    Args:
        commands: what `argparse.ArgumentParser.add_subparsers` returns. Call its `add_parser`,
            then `set_defaults(run=function)` on the result; the function takes the parsed
            arguments and returns the exit status, or None for success.
    """
