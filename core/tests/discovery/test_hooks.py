from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from tangrad.discovery import discovery
from tangrad.discovery.hooks import call_hook, call_hook_once

HOOKS = "tangrad.plugins"
HEAD = "from tangrad.plugin import hookimpl\nAPI = 1\n"


def reporting(value: str) -> str:
    return f"{HEAD}@hookimpl\ndef tangrad_report_environment(): return {value}\n"


def install(site, distribution: str, source: str) -> None:
    module = distribution.replace("-", "_")
    site.install(distribution, {HOOKS: {distribution: module}}, {f"{module}.py": source})


def report() -> dict[str, object]:
    return {plugin.distribution: value for plugin, value in call_hook("tangrad_report_environment")}


def test_every_plugin_answers_in_order_of_distribution_names(site):
    install(site, "acme-b", reporting("{'b': 2}"))
    install(site, "acme-a", reporting("{'a': 1}"))
    discovery.rescan()
    assert [item for item in report().items() if item[0].startswith("acme")] == [
        ("acme-a", {"a": 1}),
        ("acme-b", {"b": 2}),
    ]


def test_a_hook_that_raises_is_kept_and_the_others_are_called(site):
    install(site, "acme-a", reporting("1 / 0"))
    install(site, "acme-b", reporting("{'b': 2}"))
    discovery.rescan()
    assert report()["acme-b"] == {"b": 2}
    failure = next(f for f in discovery.failures() if f.plugin.distribution == "acme-a")
    assert failure.stage == "hook tangrad_report_environment"
    assert failure.cause == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        (f"{HEAD}@hookimpl\ndef tangrad_unknown(): pass\n", "no hook named tangrad_unknown"),
        (f"{HEAD}@hookimpl\ndef tangrad_add_cli(wrong): pass\n", "wrong"),
        ("1 / 0", "division by zero"),
    ],
)
def test_a_plugin_that_does_not_fit_the_specification_is_left_out(site, source, cause):
    install(site, "acme-a", source)
    install(site, "acme-b", reporting("{'b': 2}"))
    discovery.rescan()
    assert report()["acme-b"] == {"b": 2}
    assert any(cause in f.cause for f in discovery.failures())


def test_a_registering_hook_is_called_once_in_a_process_for_each_argument(site):
    source = (
        f"{HEAD}calls = []\n@hookimpl\ndef tangrad_register_kernels(device): calls.append(device)\n"
    )
    install(site, "acme-k", source)
    discovery.rescan()
    for device in ("one", "two", "one"):
        call_hook_once("tangrad_register_kernels", device=device)
    discovery.rescan()
    call_hook_once("tangrad_register_kernels", device="two")
    import acme_k

    assert acme_k.calls == ["one", "two"]


def test_a_plugin_brings_a_file_format(site, tmp_path):
    import tangrad

    source = f"""{HEAD}import json
import tangrad
class Json:
    def save(self, obj, file): file.write(json.dumps(obj.tolist()).encode())
    def load(self, file, map_location): return tangrad.tensor(json.load(file), device=map_location)
@hookimpl
def tangrad_register_formats(): return {{".json": Json()}}
"""
    install(site, "acme-format", source)
    discovery.rescan()
    path = tmp_path / "numbers.json"
    tangrad.save(tangrad.tensor([1.0, 2.0]), path)
    assert path.read_text() == "[1.0, 2.0]"
    assert tangrad.load(path, "meta").device.type == "meta"
    tangrad.save([3], tmp_path / "other.unknown")
    assert tangrad.load(tmp_path / "other.unknown") == [3]


def test_a_save_that_fails_in_a_plugin_leaves_the_old_file(site, tmp_path):
    import tangrad

    source = f"""{HEAD}class Broken:
    def save(self, obj, file): file.write(b"half"); raise ValueError("no")
@hookimpl
def tangrad_register_formats(): return {{".broken": Broken()}}
"""
    install(site, "acme-broken", source)
    discovery.rescan()
    folder = tmp_path / "saved"
    folder.mkdir()
    path = folder / "x.broken"
    path.write_text("old")
    with pytest.raises(ValueError, match="no"):
        tangrad.save([1], path)
    assert path.read_text() == "old"
    assert list(folder.iterdir()) == [path]


def test_a_plugin_brings_an_interceptor(site):
    import tangrad
    from tangrad.plugin import intercepted

    source = f"""{HEAD}class Counter:
    def __init__(self): self.names, self.left = [], 0
    def enter(self, op): self.names.append(op.name); return len(self.names)
    def leave(self, op, token): self.left += token
@hookimpl
def tangrad_register_interceptors(): return {{"counter": Counter}}
"""
    install(site, "acme-counter", source)
    install(site, "acme-wrong", f"{HEAD}@hookimpl\ndef tangrad_register_interceptors(): return 7\n")
    discovery.rescan()
    with intercepted("counter") as counter:
        tangrad.ones(2).exp().sin()
    tangrad.ones(2).exp()
    assert counter.names[-2:] == ["exp", "sin"]
    assert counter.left == sum(range(len(counter.names) + 1))
    with pytest.raises(KeyError, match="no installed plugin offers"), intercepted("unknown"):
        pass
    assert any(f.plugin.distribution == "acme-wrong" for f in discovery.failures())


@pytest.mark.parametrize(
    ("offer", "says"),
    [
        ("object", "'object' object has no attribute 'enter'"),
        ("lambda: None", "'NoneType' object has no attribute 'enter'"),
        ("7", "'int' object is not callable"),
    ],
)
def test_what_is_no_interceptor_is_refused_by_the_plugin_that_offers_it(site, offer, says):
    from tangrad.plugin import intercepted

    source = f"""{HEAD}@hookimpl
def tangrad_register_interceptors(): return {{"counter": {offer}}}
"""
    install(site, "acme-counter", source)
    discovery.rescan()
    told = rf"'counter' of acme-counter 1\.0 is no interceptor: {says}"
    with pytest.raises(TypeError, match=told), intercepted("counter"):
        pass


def test_two_plugins_with_an_interceptor_of_one_name_are_both_named(site):
    from tangrad.plugin import intercepted

    source = f"""{HEAD}@hookimpl
def tangrad_register_interceptors(): return {{"counter": object}}
"""
    install(site, "acme-one", source)
    install(site, "acme-two", source)
    discovery.rescan()
    told = r"'counter' is offered by acme-one 1\.0 and acme-two 1\.0 .*TANGRAD_DISABLE_PLUGINS"
    with pytest.raises(RuntimeError, match=told), intercepted("counter"):
        pass


def test_a_plugin_adds_cases_to_the_conformance_suite(site):
    kit = pytest.importorskip("tangrad_testing.plugin")
    source = f"""{HEAD}def right(device): assert device == "reference"
def wrong(device): raise AssertionError("not on " + device)
@hookimpl
def tangrad_add_test_cases(): return [right, wrong]
"""
    install(site, "acme-cases", source)
    paths = [str(site.folder), *sys.path]
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", kit.__name__, "-p", "no:cacheprovider"),
            *("--pyargs", "tangrad_testing.conformance.test_plugins"),
            *("--tangrad-device", "reference", "-o", "addopts="),
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        cwd=site.folder,
        capture_output=True,
        text=True,
    )
    assert "test_case_of_a_plugin[acme-cases:wrong-reference]" in finished.stdout, finished.stderr
    assert "not on reference" in finished.stdout
    assert "1 failed, 1 passed" in finished.stdout


def test_an_unknown_hook_is_an_error_of_the_caller(site):
    with pytest.raises(AttributeError):
        call_hook("tangrad_no_such_hook")


def test_every_hook_is_documented(site):
    from tangrad.discovery import hookspecs

    hooks = [value for name, value in vars(hookspecs).items() if name.startswith("tangrad_")]
    assert len(hooks) == 9
    assert all("Called" in hook.__doc__ for hook in hooks)


HALF = """
from tangrad.plugin import hookimpl
from tangrad.discovery.hooks import call_hook, call_hook_once
@hookimpl
def tangrad_report_environment(): return {"acme": ready}
@hookimpl
def tangrad_register_ops(): told.append(ready)
call_hook_once("tangrad_register_ops")
first = call_hook("tangrad_report_environment")
told, ready, API = [], True, 1
"""


def test_a_plugin_that_calls_hooks_while_it_is_imported_is_called_again(site):
    site.install("acme-half", {HOOKS: {"p": "acme_half"}}, {"acme_half.py": HALF})
    discovery.rescan()
    module = importlib.import_module("acme_half")
    assert module.first == []
    call_hook_once("tangrad_register_ops")
    call_hook_once("tangrad_register_ops")
    assert module.told == [True]
    assert [facts for _, facts in call_hook("tangrad_report_environment")] == [{"acme": True}]
    assert not discovery.failures()
