from __future__ import annotations

import pytest

from tangrad.plugins import discovery
from tangrad.plugins.hooks import call_hook, call_hook_once

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


def test_an_unknown_hook_is_an_error_of_the_caller(site):
    with pytest.raises(AttributeError):
        call_hook("tangrad_no_such_hook")


def test_every_hook_is_documented(site):
    from tangrad.plugins import hookspecs

    hooks = [value for name, value in vars(hookspecs).items() if name.startswith("tangrad_")]
    assert len(hooks) == 9
    assert all("Called" in hook.__doc__ for hook in hooks)
