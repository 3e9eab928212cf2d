"""Try plugins in a process of their own, which one of them may end: that is told, not suffered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable

from tangrad.discovery import discovery
from tangrad.discovery.discovery import DEVICES, Plugin
from tangrad.discovery.probing import PROBE_SECONDS

SECONDS = 60.0  # for all imports; a device's answer has a limit of its own
_IMPORTED = "imported"
_CHILD = (
    "import sys; path, wanted = eval(sys.stdin.read()); sys.path[:] = path; "
    "from tangrad.devices.registry import availability; "
    "from tangrad.discovery import trial; trial.use(wanted, availability)"
)


def try_apart() -> None:
    """Import every plugin and probe every device in another process; keep what ended it."""
    discovery.refresh()
    plugins = [plugin for plugin in discovery.plugins() if not plugin.disabled]
    if not plugins or not _ending(plugins)[0]:
        return
    # A distribution may list a hundred names, and seldom is it more than one that ends a process.
    together: dict[str, list[Plugin]] = {}
    for plugin in plugins:
        together.setdefault(plugin.distribution, []).append(plugin)
    for claims in together.values():
        if _ending(claims)[0]:
            for plugin in claims:
                _try(plugin)


def _try(plugin: Plugin) -> None:
    """Import one plugin in another process, and keep how it ended that."""
    ending, imported = _ending([plugin])
    if ending:
        remedy = f"Report it to the authors of {plugin.distribution}, or uninstall it."
        stage = "probe" if imported else "import"
        discovery.keep_failure(plugin, stage, f"it ended its process: {ending}", remedy)


def use(wanted: Iterable[tuple[str, str]], ask: Callable[[str], object]) -> None:
    """Import plugins and probe devices in this process, and end it.

    Args:
        wanted: (group, name) of each.
        ask: probes the device of a name.
    """
    for group, name in wanted:
        try:
            plugin = discovery.find(group, name)
            if plugin is not None:
                discovery.load(plugin)
                print(_IMPORTED, flush=True)
                if group == DEVICES:
                    ask(name)
        except Exception:
            continue  # found again, and told, by the process that asked
    os._exit(0)  # what plugins would do at exit, or have running, is of no interest


def _ending(plugins: list[Plugin]) -> tuple[str, bool]:
    """Return how a process ended that was not to end by plugins, "" if well; whether one loaded."""
    wanted = [(plugin.group, plugin.name) for plugin in plugins]
    answers = PROBE_SECONDS * sum(group == DEVICES for group, _ in wanted)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD],
            input=repr((sys.path, wanted)),
            capture_output=True,
            text=True,
            timeout=SECONDS + answers,
        )
    except subprocess.TimeoutExpired as error:
        return f"no answer within {error.timeout:g} s", _IMPORTED in str(error.stdout)
    imported = _IMPORTED in done.stdout
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name, imported
    return f"status {done.returncode}" if done.returncode else "", imported
