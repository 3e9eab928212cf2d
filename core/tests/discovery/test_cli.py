from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest

from tangrad import cli
from tangrad.discovery import discovery

HOOKS = "tangrad.plugins"
HEAD = "from tangrad.plugin import hookimpl\nAPI = 1\n"
COMMAND = (
    "@hookimpl\ndef tangrad_add_cli(commands):\n"
    "    command = commands.add_parser('hello')\n"
    "    command.set_defaults(run=lambda options: print('hello') or 3)\n"
)
REPORT = "@hookimpl\ndef tangrad_report_environment(): return {'acme level': 11}\n"


@pytest.fixture
def installed(site):
    site.install("acme-p", {HOOKS: {"p": "acme_p"}}, {"acme_p.py": HEAD + COMMAND + REPORT})
    site.install("acme-bad", {HOOKS: {"bad": "acme_bad"}}, {"acme_bad.py": "1 / 0"})
    discovery.rescan()
    return site


def test_info_tells_what_there_is_and_what_failed(installed, capsys):
    assert cli.main(["info"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for line in (
        "Distributions",
        "acme-p 1.0",
        "reference tangrad available",
        "acme level 11 acme-p",
        "FAILED acme-bad 1.0 (tangrad.plugins: bad = acme_bad)",
        "cause ZeroDivisionError: division by zero",
        "remedy Run: pip install --force-reinstall acme-bad",
    ):
        assert line in text
    assert "float32" in text
    assert "strided" in text


def test_info_counts_names_that_are_as_they_should_be(site, capsys):
    site.install("acme-n", {"tangrad.names": {"acme_name": "json:dumps"}}, {})
    discovery.rescan()
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    assert "acme_name" not in text
    assert "names and modules that packages bring are ok; --json lists them." in text
    assert cli.main(["info", "--json"]) == 0
    names = [plugin["name"] for plugin in json.loads(capsys.readouterr().out)["plugins"]]
    assert "acme_name" in names


def test_info_as_json_tells_the_same(installed, capsys):
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {"name": "meta", "provider": "tangrad", "status": "available"} in facts["devices"]
    assert facts["distributions"]["acme-p"] == "1.0"
    assert [f["distribution"] for f in facts["failures"]] == ["acme-bad"]
    statuses = {p["name"]: p["status"] for p in facts["plugins"]}
    assert (statuses["p"], statuses["bad"]) == ("ok", "failed: import")


def test_a_device_whose_hardware_is_missing_is_no_failure(site, capsys):
    source = (
        "from tangrad.plugin import DeviceDriver\nAPI = 1\n"
        "class Acme(DeviceDriver):\n    def probe(self):\n        return 'no acme board found'\n"
    )
    site.install(
        "acme-dev", {"tangrad.devices": {"acme": "acme_dev:Acme"}}, {"acme_dev.py": source}
    )
    discovery.rescan()
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    row = {
        "name": "acme",
        "provider": "acme-dev 1.0",
        "status": "not available: no acme board found",
    }
    assert row in facts["devices"]
    assert facts["failures"] == []
    assert {p["name"]: p["status"] for p in facts["plugins"]}["acme"] == "not available"


def test_info_runs_in_a_process_of_its_own(installed):
    outcome = installed.run(
        "from runpy import run_module as r; import sys; sys.argv = ['', 'info']\n"
        "r('tangrad', run_name='__main__')"
    )
    assert "FAILED acme-bad" in outcome.stdout, outcome.stderr
    assert outcome.returncode == 0


def test_an_unknown_command_is_answered_by_the_usage(installed, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["no-such-command"])
    assert exit_.value.code == 2
    assert "usage: python -m tangrad" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (
            ["profile", "x.py"],
            r"'profile' needs a package .*; run: pip install tangrad\[profiler\]",
        ),
        (["check"], r"'check' needs a package .*; run: pip install tangrad\[testing\]"),
        (["jit", "x.py:f"], r"'jit' needs a package .*; run: pip install tangrad\[jit\]"),
        (["run", "x.py"], "'run' needs a package .*; run: pip install tangrad-torch-surface"),
        (["export", "x.py:m", "--to", "onnx"], r"pip install tangrad\[onnx\]"),
    ],
)
def test_a_command_of_a_package_that_is_not_installed_names_it(
    site, monkeypatch, capsys, command, remedy
):
    monkeypatch.setattr(cli, "call_hook", lambda *args, **kwargs: [])
    monkeypatch.setattr(discovery, "find", lambda group, name: None)
    monkeypatch.setattr(discovery, "version_of", lambda distribution: None)
    with suppress(SystemExit):
        assert cli.main(command) == 1
    assert re.search(remedy, capsys.readouterr().err)


def test_a_command_whose_package_does_not_load_tells_why(installed, capsys):
    with pytest.raises(SystemExit):
        cli.main(["no-such-command"])
    assert "acme-bad 1.0 (tangrad.plugins: bad = acme_bad) failed at import: ZeroDivisionError" in (
        capsys.readouterr().err
    )


def test_no_command_is_answered_by_the_usage_and_a_list_of_commands(installed, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main([])
    assert exit_.value.code == 2
    told = capsys.readouterr().err
    assert "usage: python -m tangrad" in told
    assert {"info", "op", "inspect"} <= {line.split()[0] for line in told.splitlines() if line}


def test_a_plugin_adds_a_command(installed, capsys):
    assert cli.main(["hello"]) == 3
    assert capsys.readouterr().out == "hello\n"


def test_a_command_that_is_interrupted_says_so_in_a_sentence(site, capsys):
    source = HEAD + COMMAND.replace(
        "print('hello') or 3", "(_ for _ in ()).throw(KeyboardInterrupt)"
    )
    site.install("acme-p", {HOOKS: {"p": "acme_p"}}, {"acme_p.py": source})
    discovery.rescan()
    assert cli.main(["hello"]) == 130
    assert capsys.readouterr().err == "\npython -m tangrad hello: interrupted\n"


def test_a_plugin_cannot_replace_a_command(installed, capsys):
    source = HEAD + COMMAND.replace("hello", "info")
    installed.install("acme-q", {HOOKS: {"q": "acme_q"}}, {"acme_q.py": source})
    discovery.rescan()
    assert cli.main(["hello"]) == 3
    assert "acme-q 1.0" in capsys.readouterr().err
    assert cli.main(["info"]) == 0


def test_the_commands_of_the_core_import_no_plugin(installed, monkeypatch, capsys):
    description = SimpleNamespace(describe=lambda name: f"all about {name}")
    monkeypatch.setitem(sys.modules, "tangrad.ops.definition.describe", description)
    assert cli.main(["op", "add"]) == 0
    assert capsys.readouterr().out == "all about add\n"
    assert "acme_p" not in sys.modules


@pytest.mark.parametrize(
    ("source", "stage"),
    [
        ("import os\nAPI = 1\nos.abort()\n", "import"),
        (
            "import os\nfrom tangrad.plugin import DeviceDriver\nAPI = 1\n"
            "class Acme(DeviceDriver):\n    def probe(self):\n        os.abort()\n",
            "probe",
        ),
    ],
)
def test_a_plugin_that_ends_its_process_is_a_line_in_the_table(installed, capsys, source, stage):
    installed.install(
        "acme-dev", {"tangrad.devices": {"acme": "acme_dev:Acme"}}, {"acme_dev.py": source}
    )
    discovery.rescan()
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    (device,) = [d for d in facts["devices"] if d["name"] == "acme"]
    assert "it ended its process: SIGABRT" in device["status"]
    failures = {f["distribution"]: f["stage"] for f in facts["failures"]}
    assert failures == {"acme-dev": stage, "acme-bad": "import"}
    assert {p["name"]: p["status"] for p in facts["plugins"]}["p"] == "ok"


EXPORTER = "API = 1\ndef write(model, args, file): print(type(model).__name__, len(args), file)\n"
MODEL = "import tangrad\nclass Net:\n    def state_dict(self): return {}\nmodel = Net()\n"


def test_a_model_goes_to_an_installed_exporter(site, tmp_path, capsys):
    site.install(
        "acme-out", {"tangrad.exporters": {"acme": "acme_out:write"}}, {"acme_out.py": EXPORTER}
    )
    discovery.rescan()
    file = tmp_path / "m.py"
    file.write_text(MODEL + "example_inputs = (1, 2)\n", "utf-8")
    assert cli.main(["export", f"{file}:model", "--to", "acme", "-o", "x.acme"]) == 0
    assert capsys.readouterr().out == "Net 2 x.acme\nwrote x.acme\n"
    assert cli.main(["export", f"{file}:Net", "--to", "acme", "--input", "2x3:int64"]) == 0
    assert capsys.readouterr().out.startswith("Net 1 Net.acme\n")
    for model, told in ((f"{file}:other", "has no 'other'"), ("model", "as FILE:MODEL")):
        assert cli.main(["export", model, "--to", "acme"]) == 1
        assert told in capsys.readouterr().err
    assert cli.main(["export", f"{file}:model", "--to", "acme", "--input", "ax3"]) == 1
    assert "is no shape" in capsys.readouterr().err


def test_an_exporter_that_is_not_installed_is_refused_with_those_that_are(site, capsys):
    site.install(
        "acme-out", {"tangrad.exporters": {"acme": "acme_out:write"}}, {"acme_out.py": EXPORTER}
    )
    discovery.rescan()
    assert cli.main(["export", "m.py:model", "--to", "nothing"]) == 1
    assert "among the installed exporters" in capsys.readouterr().err


def test_inspect_asks_the_format_of_a_plugin(site, tmp_path, capsys):
    source = HEAD + (
        "class Format:\n    def describe(self, file):\n"
        "        return {'kind': 'acme', 'parts': {'a': 1}, 'links': []}\n"
        "@hookimpl\ndef tangrad_register_formats(): return {'.acme': Format()}\n"
    )
    site.install("acme-f", {HOOKS: {"f": "acme_f"}}, {"acme_f.py": source})
    discovery.rescan()
    assert cli.main(["inspect", str(tmp_path / "x.acme")]) == 0
    assert capsys.readouterr().out == "kind: acme\nparts: 1\n  a: 1\nlinks: none\n"
    assert cli.main(["inspect", "--json", str(tmp_path / "x.acme")]) == 0
    assert json.loads(capsys.readouterr().out)["parts"] == {"a": 1}
