from __future__ import annotations

import importlib
import threading

import pytest

from tangrad.discovery import discovery, probing
from tangrad.discovery.discovery import PluginError

EXPORTERS = "tangrad.exporters"
GOOD = "API = 1\ndef export(): return 'exported'\n"


def failure_of(name: str) -> discovery.Failure:
    return next(f for f in discovery.failures() if f.plugin.name == name)


def test_a_plugin_is_found_by_group_and_name_and_loaded_once(site):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    plugin = discovery.find(EXPORTERS, "x")
    assert (plugin.distribution, plugin.version, plugin.value) == ("acme-x", "1.0", "acme_x")
    assert discovery.load(plugin) is discovery.load_by_name(EXPORTERS, "x")
    assert discovery.load(plugin).export() == "exported"


def test_an_entry_point_may_name_an_attribute(site):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x:export"}}, {"acme_x.py": GOOD})
    assert discovery.load_by_name(EXPORTERS, "x")() == "exported"


def test_an_unknown_name_lists_what_is_installed(site):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    with pytest.raises(LookupError, match=r"no 'y' among the installed exporters \(.*x\)"):
        discovery.load_by_name(EXPORTERS, "y")


def test_install_use_and_uninstall_in_one_process(site):
    with pytest.raises(LookupError):
        discovery.load_by_name(EXPORTERS, "x")
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    assert discovery.load_by_name(EXPORTERS, "x").export() == "exported"
    site.uninstall("acme-x")
    discovery.rescan()
    with pytest.raises(LookupError):
        discovery.load_by_name(EXPORTERS, "x")


def test_install_use_and_uninstall_across_processes(site, tmp_path):
    use = (
        "from tangrad.discovery import discovery\n"
        "print(discovery.load_by_name('tangrad.exporters', 'x').export())"
    )
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert "LookupError" in site.run(use, **cache).stderr
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    assert site.run(use, **cache).stdout == "exported\n"
    site.uninstall("acme-x")
    assert "LookupError" in site.run(use, **cache).stderr
    assert not (tmp_path / "cache").exists()


def test_a_plugin_that_raises_on_import_keeps_its_failure_and_harms_no_other(site):
    site.install("acme-bad", {EXPORTERS: {"bad": "acme_bad"}}, {"acme_bad.py": "1 / 0\n"})
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    discovery.check_all()
    failure = failure_of("bad")
    assert (failure.stage, failure.cause) == ("import", "ZeroDivisionError: division by zero")
    assert "acme_bad.py" in failure.traceback
    assert "pip install --force-reinstall acme-bad" in failure.remedy
    assert discovery.load_by_name(EXPORTERS, "x").export() == "exported"


def test_a_kept_failure_is_raised_at_every_use_with_all_that_is_known(site):
    site.install("acme-bad", {EXPORTERS: {"bad": "acme_bad"}}, {"acme_bad.py": "1 / 0\n"})
    for _ in range(2):
        with pytest.raises(PluginError) as raised:
            discovery.load_by_name(EXPORTERS, "bad")
        for part in ("acme-bad 1.0", "tangrad.exporters: bad = acme_bad", "division", "Run: pip"):
            assert part in str(raised.value)
        assert "1 / 0" in raised.value.__notes__[0]


def test_a_plugin_that_exits_the_interpreter_is_a_broken_plugin(site):
    source = "raise SystemExit('no license')\n"
    site.install("acme-bad", {EXPORTERS: {"bad": "acme_bad"}}, {"acme_bad.py": source})
    with pytest.raises(PluginError, match="SystemExit: no license"):
        discovery.load_by_name(EXPORTERS, "bad")


def test_a_mended_plugin_works_after_a_rescan(site):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": "raise OSError\n"})
    with pytest.raises(PluginError):
        discovery.load_by_name(EXPORTERS, "x")
    site.uninstall("acme-x")
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD}, version="2.0")
    discovery.rescan()
    assert discovery.load_by_name(EXPORTERS, "x").export() == "exported"


@pytest.mark.parametrize(
    ("source", "cause", "remedy"),
    [
        ("API = 99", "made for plugin API 99, this tangrad offers 1", "--upgrade tangrad"),
        ("API = 0", "made for plugin API 0, this tangrad needs at least 1", "--upgrade acme-x"),
        ("", "states no API version", "API = 1"),
        ("API = True", "states no API version", "API = 1"),
    ],
)
def test_another_api_version_is_refused(site, source, cause, remedy):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": source})
    with pytest.raises(PluginError, match=cause) as raised:
        discovery.load_by_name(EXPORTERS, "x")
    assert remedy in str(raised.value)


def test_a_package_states_its_version_once_for_all_its_modules(site):
    files = {
        "acme_x/__init__.py": "API = 1\n",
        "acme_x/inner.py": "def export(): return 'exported'\n",
    }
    site.install("acme-x", {EXPORTERS: {"x": "acme_x.inner"}}, files)
    assert discovery.load_by_name(EXPORTERS, "x").export() == "exported"
    site.uninstall("acme-x")
    files = {"acme_y/__init__.py": "API = 99\n", "acme_y/inner.py": "def export(): pass\n"}
    site.install("acme-y", {EXPORTERS: {"y": "acme_y.inner"}}, files)
    discovery.rescan()
    with pytest.raises(PluginError, match="made for plugin API 99"):
        discovery.load_by_name(EXPORTERS, "y")


@pytest.mark.parametrize("value", ["acme_x [fast]", "acme_x[fast, small]", "acme_x:inner [fast]"])
def test_an_entry_point_may_ask_for_extras(site, value):
    site.install("acme-x", {EXPORTERS: {"x": value}}, {"acme_x.py": GOOD + "inner = export\n"})
    assert getattr(discovery.load_by_name(EXPORTERS, "x"), "__name__", "") in ("acme_x", "export")
    assert not discovery.failures()


HALF = """
from tangrad.discovery import discovery
try:
    discovery.load_by_name("tangrad.exporters", "x")
except discovery.PluginError as error:
    seen = str(error)
API = 1
def export(): return "exported"
"""


@pytest.mark.parametrize("value", ["acme_x", "acme_x:export"])
def test_a_plugin_asked_for_while_it_is_imported_is_tried_again(site, value):
    site.install("acme-x", {EXPORTERS: {"x": value}}, {"acme_x.py": HALF})
    module = importlib.import_module("acme_x")
    assert "acme-x 1.0" in module.seen
    assert not discovery.failures()
    assert discovery.load_by_name(EXPORTERS, "x") in (module, module.export)


def test_a_half_uninstalled_plugin_says_so(site):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x.main"}}, {})
    with pytest.raises(PluginError, match="half uninstalled") as raised:
        discovery.load_by_name(EXPORTERS, "x")
    assert "pip install --force-reinstall acme-x (or: pip uninstall acme-x)" in str(raised.value)


def test_a_missing_dependency_is_named(site):
    source = "import a_missing_module\n"
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": source})
    with pytest.raises(PluginError, match="needs module a_missing_module, which is not installed"):
        discovery.load_by_name(EXPORTERS, "x")


def test_two_distributions_with_one_name_are_an_error_naming_both_when_it_is_used(site):
    site.install("acme-a", {EXPORTERS: {"x": "acme_a", "y": "acme_a"}}, {"acme_a.py": GOOD})
    site.install("acme-b", {EXPORTERS: {"x": "acme_b"}}, {"acme_b.py": GOOD})
    assert discovery.load_by_name(EXPORTERS, "y").export() == "exported"
    with pytest.raises(PluginError, match=r"acme-a 1.0 \(acme_a\) and acme-b 1.0 \(acme_b\)"):
        discovery.load_by_name(EXPORTERS, "x")


def test_the_same_value_registered_twice_is_one_plugin_of_the_first_distribution(site):
    site.install("acme-b", {EXPORTERS: {"x": "acme_a"}}, {"acme_a.py": GOOD})
    site.install("acme-a", {EXPORTERS: {"x": "acme_a"}}, {"acme_a.py": GOOD})
    assert discovery.find(EXPORTERS, "x").distribution == "acme-a"


@pytest.mark.parametrize("value", ["1", "x", "acme_x", "other, Acme.X"])
def test_the_environment_switches_plugins_off(site, monkeypatch, value):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": "1 / 0"})
    monkeypatch.setenv(discovery.DISABLE_VARIABLE, value)
    discovery.rescan()
    assert discovery.find(EXPORTERS, "x") is None
    discovery.check_all()
    assert not [f for f in discovery.failures() if f.plugin.name == "x"]
    with pytest.raises(LookupError, match="acme-x is switched off by TANGRAD_DISABLE_PLUGINS"):
        discovery.load_by_name(EXPORTERS, "x")


def test_the_environment_switches_off_only_what_it_names(site, monkeypatch):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    monkeypatch.setenv(discovery.DISABLE_VARIABLE, "y,acme-y")
    discovery.rescan()
    assert discovery.find(EXPORTERS, "x") is not None


def test_a_probe_that_hangs_did_not_answer(site, monkeypatch):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    monkeypatch.setenv(probing.PROBE_VARIABLE, "0.05")
    plugin = discovery.find(EXPORTERS, "x")
    asked = []

    def hang():
        asked.append(plugin)
        threading.Event().wait()

    assert probing.probe(plugin, hang) == "did not answer within 0.05 s"
    assert probing.probe(plugin, hang) == "did not answer within 0.05 s"
    assert len(asked) == 1, "a hanging probe is waited for once"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: True, None),
        (lambda: "no such hardware", "no such hardware"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: None, r"its probe() returned None; it has to return True or the reason why not"),
    ],
)
def test_a_probe_gives_true_or_a_reason(site, answer, reason):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    assert probing.probe(discovery.find(EXPORTERS, "x"), answer) == reason


def test_unreadable_entry_points_are_a_failure_of_their_distribution(site):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    site.install("acme-y", {EXPORTERS: {"y": "not ! a value"}}, {})
    (site.folder / "acme_z-1.0.dist-info").mkdir()
    (site.folder / "acme_z-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{EXPORTERS}]\nz = q\n"
    )
    discovery.check_all()
    assert discovery.load_by_name(EXPORTERS, "x").export() == "exported"
    assert {f.plugin.distribution for f in discovery.failures()} >= {"acme-y", "acme_z"}


def test_a_distribution_earlier_on_the_path_shadows_a_later_one(site, tmp_path, monkeypatch):
    other = type(site)(tmp_path / "earlier")
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    other.install("acme-x", {EXPORTERS: {"x": "acme_new"}}, {"acme_new.py": GOOD}, version="2.0")
    monkeypatch.syspath_prepend(other.folder)
    discovery.rescan()
    assert discovery.find(EXPORTERS, "x").version == "2.0"


def test_known_names_are_gathered_once_for_a_scan_and_anew_for_the_next(site):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD})
    discovery.rescan()
    assert "x" in discovery.known_names(EXPORTERS)
    assert discovery.known_names(EXPORTERS) is discovery.known_names(EXPORTERS)
    site.install("acme-y", {EXPORTERS: {"y": "acme_y"}}, {"acme_y.py": GOOD})
    discovery.rescan()
    assert {"x", "y"} <= discovery.known_names(EXPORTERS)
