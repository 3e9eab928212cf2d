"""Parse tangrad's command line, and tell about the installation.

The commands below are the core's; plugins add theirs by the hook `tangrad_add_cli`.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tangrad.discovery import discovery, neutral
from tangrad.discovery.hooks import call_hook, call_hook_once

PLUGIN_COLUMNS = ("group", "name", "value", "distribution", "version", "status")
NAME_GROUPS = ("tangrad.names", "tangrad.namespaces", "tangrad.ops")  # a hundred entries
CORE_DISTRIBUTIONS = ("tangrad", "tangrad-core", "numpy", "pluggy", "stevedore")
INTERRUPTED = 130  # what a shell says of a program that ended by SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    Args:
        arguments: what follows `python -m tangrad`; from `sys.argv` by default.

    Raises:
        SystemExit: with status 2 and the usage if the command line is wrong.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _run_command(given)
    except KeyboardInterrupt:
        print(f"\npython -m tangrad {''.join(given[:1])}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run_command(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tangrad", description="Inspect tangrad.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_own(commands)
    # The hook imports every plugin: not for the core's own commands.
    if not given or given[0] not in commands.choices:
        call_hook("tangrad_add_cli", commands=commands)
        _warn_of_failed_commands()
    if not given:
        parser.print_help(sys.stderr)
        parser.exit(2)
    # A command may take its words as they are, such as the arguments of another program.
    chosen = commands.choices.get(given[0])
    if chosen is None and (absent := neutral.what_brings(f"command.{given[0]}", f"'{given[0]}'")):
        parser.error(absent)
    run_words = chosen.get_default("run_words") if chosen is not None else None
    if run_words is not None:
        return int(run_words(given[1:]) or 0)
    options = parser.parse_args(given)
    return int(options.run(options) or 0)


def information() -> dict[str, Any]:
    """Return all that `python -m tangrad info` tells, as what JSON can hold.

    Loads every plugin and asks every device whether it can work, in another process first, which
    they may end; opens none.
    """
    from tangrad import _C
    from tangrad.devices import registry
    from tangrad.discovery.trial import try_apart

    try_apart()
    discovery.check_all()
    call_hook_once("tangrad_register_dtypes")
    call_hook_once("tangrad_register_layouts")
    devices = [_device_row(name, *registry.availability(name)) for name in registry.device_names()]
    environment = [
        {"name": str(name), "value": str(value), "distribution": plugin.distribution}
        for plugin, facts in call_hook("tangrad_report_environment")
        for name, value in _facts(plugin, facts)
    ]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "devices": devices,
        "dtypes": [_short(dtype) for dtype in _C.registered_dtypes()],
        "layouts": [_short(layout) for layout in _C.registered_layouts()],
        "plugins": [_plugin_row(plugin) for plugin in discovery.plugins()],
        "distributions": _versions(),
        "environment": environment,
        "failures": [_failure_row(f) for f in discovery.failures() if not f.missing],
    }


def render(facts: Mapping[str, Any]) -> str:
    """Return what `information` gives as text with aligned columns."""
    lines = [f"Python {facts['python']} on {facts['platform']}"]
    lines += _table("Distributions", ("name", "version"), facts["distributions"].items())
    lines += _table("Devices", *_columns(facts["devices"], "name", "provider", "status"))
    lines += ["", "Dtypes", *_wrapped(facts["dtypes"]), "", "Layouts", *_wrapped(facts["layouts"])]
    told = [p for p in facts["plugins"] if p["group"] not in NAME_GROUPS or p["status"] != "ok"]
    lines += _table("Plugins", *_columns(told, *PLUGIN_COLUMNS))
    if fine := len(facts["plugins"]) - len(told):
        lines += ["", f"{fine} names and modules that packages bring are ok; --json lists them."]
    lines += _table("Environment", *_columns(facts["environment"], "name", "value", "distribution"))
    for failure in facts["failures"]:
        lines += _paragraph(failure)
    return "\n".join(lines)


def _add_own(commands: Any) -> None:
    info = commands.add_parser("info", help="list devices, dtypes, layouts, plugins, failures")
    info.add_argument("--json", action="store_true", help="print JSON")
    info.set_defaults(run=_info)
    op = commands.add_parser("op", help="print everything that follows from an op's definition")
    op.add_argument("name", metavar="NAME", help="such as add, softmax or layer_norm")
    op.set_defaults(run=_op)
    inspect = commands.add_parser("inspect", help="show what a file holds, without loading it")
    inspect.add_argument("file", metavar="FILE", help="written by save, PyTorch or safetensors")
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.set_defaults(run=_inspect)
    export = commands.add_parser("export", help="write a model for other programs")
    export.add_argument(
        "model",
        metavar="FILE:MODEL",
        help="a file of Python, and in it a module, or a function that makes one",
    )
    export.add_argument("--to", metavar="NAME", required=True, help="an installed exporter")
    export.add_argument("-o", "--out", metavar="PATH", help="by default the model's name")
    export.add_argument(
        "--input",
        metavar="SHAPE[:DTYPE]",
        action="append",
        default=[],
        help="an example input such as 1x3x224x224 or 1x16:int64, once for each; by default what "
        "example_inputs of the file holds",
    )
    export.set_defaults(run=_export)


def _info(options: argparse.Namespace) -> None:
    facts = information()
    if not options.json:
        print(render(facts))
        return
    import json

    print(json.dumps(facts, indent=2))


def _op(options: argparse.Namespace) -> int:
    from tangrad.ops.definition.describe import describe

    try:
        print(describe(options.name))
    except AttributeError as error:
        print(f"python -m tangrad op: {error}", file=sys.stderr)
        return 1
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from tangrad.serialization import SerializationError, inspection

    try:
        described = _described_by_plugin(options.file)
        if described is not None:
            print(_as_json(described) if options.json else "\n".join(_as_lines(described)))
            return 0
        found = inspection.describe(options.file)
    except (SerializationError, OSError) as error:
        print(f"python -m tangrad inspect: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(inspection.as_json(found))
    else:
        print(inspection.as_text(found, options.file))
    return 0


def _described_by_plugin(file: str) -> dict[str, Any] | None:
    """Return what the format of a plugin tells of a file, None if the format is the core's."""
    import os

    from tangrad.discovery.hooks import offered
    from tangrad.serialization import SUFFIXES

    suffix = os.path.splitext(file)[1]
    found = None if suffix in SUFFIXES else offered("tangrad_register_formats", suffix)[0]
    describe = getattr(found, "describe", None)
    return None if describe is None else dict(describe(file))


def _as_json(found: Mapping[str, Any]) -> str:
    import json

    return json.dumps(found, indent=2, default=str)


def _as_lines(found: Mapping[str, Any]) -> Iterable[str]:
    for key, value in found.items():
        if isinstance(value, Mapping):
            yield f"{key}: {len(value)}"
            yield from (f"  {name}: {told}" for name, told in value.items())
        elif isinstance(value, (list, tuple)):
            yield f"{key}: {', '.join(map(str, value)) or 'none'}"
        else:
            yield f"{key}: {value}"


def _export(options: argparse.Namespace) -> int:
    """Load a model from a file of Python and hand it to an exporter of the group."""
    from tangrad.utils.program_models import load_model

    try:
        write = discovery.load_by_name("tangrad.exporters", options.to)
        model, inputs = load_model(options.model, options.input)
        out = options.out or f"{options.model.rpartition(':')[2]}.{options.to}"
        report = write(model, inputs, out)
    except (LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        absent = isinstance(error, LookupError) and neutral.what_brings(
            f"exporters.{options.to}", f"the exporter {options.to}"
        )
        print(f"python -m tangrad export: {absent or error}", file=sys.stderr)
        return 1
    print(f"wrote {out}")
    if type(report).__str__ is not object.__str__:  # it tells something
        print(report)
    return 0


def _warn_of_failed_commands() -> None:
    for failure in discovery.failures():
        if failure.plugin.group == discovery.HOOKS:
            print(f"python -m tangrad: {failure}", file=sys.stderr)


def _facts(plugin: discovery.Plugin, facts: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(facts, Mapping):
        return facts.items()
    cause = f"tangrad_report_environment returned {type(facts).__name__}, not a mapping"
    remedy = f"Report it to the authors of {plugin.distribution}."
    discovery.keep_failure(plugin, "hook tangrad_report_environment", cause, remedy)
    return ()


def _short(registered: Any) -> str:
    return str(registered).rpartition(".")[2]


def _versions() -> dict[str, str]:
    core = {name: discovery.version_of(name) or "not installed" for name in CORE_DISTRIBUTIONS}
    return core | discovery.distributions()


def _device_row(name: str, provider: str, status: str) -> dict[str, str]:
    return {"name": name, "provider": provider, "status": status}


def _plugin_row(plugin: discovery.Plugin) -> dict[str, str]:
    own = [f for f in discovery.failures() if f.plugin.identity == plugin.identity]
    failed = [f.stage for f in own if not f.missing]
    status = "failed: " + ", ".join(failed) if failed else "not available" if own else "ok"
    return {
        "group": plugin.group,
        "name": plugin.name,
        "value": plugin.value,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "status": "disabled" if plugin.disabled else status,
    }


def _failure_row(failure: discovery.Failure) -> dict[str, str]:
    return {
        "distribution": failure.plugin.distribution,
        "version": failure.plugin.version,
        "entry_point": f"{failure.plugin.group}: {failure.plugin.name} = {failure.plugin.value}",
        "stage": failure.stage,
        "cause": failure.cause,
        "remedy": failure.remedy,
        "traceback": failure.traceback,
    }


def _columns(
    rows: Iterable[Mapping[str, str]], *names: str
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    return names, [tuple(row[name] for name in names) for row in rows]


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a titled table, every column as wide as its widest cell; nothing without rows."""
    cells = [tuple(head), *map(tuple, rows)]
    if len(cells) == 1:
        return []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return ["", title, *(f"  {line}" for line in lines)]


def _wrapped(names: Iterable[str]) -> list[str]:
    import textwrap

    return textwrap.wrap(", ".join(names), 96, initial_indent="  ", subsequent_indent="  ")


def _paragraph(failure: Mapping[str, str]) -> list[str]:
    return [
        "",
        f"FAILED {failure['distribution']} {failure['version']} ({failure['entry_point']})",
        f"  at      {failure['stage']}",
        f"  cause   {failure['cause']}",
        f"  remedy  {failure['remedy']}",
        *(f"    {line}" for line in failure["traceback"].splitlines()),
    ]
