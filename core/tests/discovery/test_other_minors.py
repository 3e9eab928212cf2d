"""A package that is pinned to another minor version of the core is refused, with the command.

pip warns of such a mixture where one package was upgraded alone, and leaves it installed.
"""

from __future__ import annotations

import pytest

from tangrad.discovery import VERSION, discovery
from tangrad.discovery.discovery import PluginError

EXPORTERS = "tangrad.exporters"
GOOD = "API = 1\ndef export(): return 'exported'\n"
MINOR = ".".join(VERSION.split(".")[:2])
# Installed below `tangrad` itself, as `tangrad.nn` is: Python finds it without asking anybody.
INSIDE = {"tangrad.names": {"acme": "tangrad.acme"}}


def test_the_version_of_the_core_is_the_one_that_is_told():
    import tangrad

    assert tangrad.__version__.endswith(f"+tangrad{VERSION}")


@pytest.mark.parametrize(
    "pin",
    [
        "",
        f"tangrad-core~={MINOR}.0",
        f"tangrad-core~={MINOR}",
        "tangrad-core>=99",
        'tangrad-core~=99.1.0; extra == "later"',
        "tangrad-corella~=99.1.0",
    ],
)
def test_a_package_that_fits_or_asks_for_nothing_is_loaded(site, pin):
    site.install("acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD}, requires=pin)
    assert discovery.load_by_name(EXPORTERS, "x").export() == "exported"


@pytest.mark.parametrize(
    ("pin", "made_for", "remedy"),
    [
        ("99.1.0", "99.1", "pip install --upgrade tangrad acme-x"),
        ("99.1", "99", "pip install --upgrade tangrad acme-x"),
        ("0.0.0", "0.0", r"to stay: pip install 'tangrad-core~=0\.0\.0'"),
    ],
)
def test_another_minor_is_refused_with_the_command_that_mends_it(site, pin, made_for, remedy):
    site.install(
        "acme-x",
        {EXPORTERS: {"x": "acme_x"}},
        {"acme_x.py": "raise SystemExit('it was imported')"},
        requires=f"tangrad-core~={pin}",
    )
    told = f"made for tangrad-core {made_for}, and tangrad-core {VERSION} is installed.*{remedy}"
    with pytest.raises(PluginError, match=told):
        discovery.load_by_name(EXPORTERS, "x")
    assert [failure.stage for failure in discovery.failures()] == ["API version"]


@pytest.mark.parametrize(
    "use",
    [
        "import tangrad.acme",
        "from tangrad import acme",
        "import tangrad.acme.inner",
        "import tangrad; tangrad.acme",
        "import tangrad; tangrad.ones(1); from tangrad.acme import inner",
    ],
)
def test_what_is_installed_below_tangrad_is_refused_however_it_is_imported(site, use):
    modules = {"tangrad/acme/__init__.py": "made = 1", "tangrad/acme/inner.py": ""}
    site.install("tangrad-acme", INSIDE, modules, requires="tangrad-core~=99.1.0")
    done = site.run(f"{use}\nprint('used')")
    assert "used" not in done.stdout
    told = f"made for tangrad-core 99.1, and tangrad-core {VERSION} is installed"
    assert told in done.stderr.splitlines()[-1]
    assert "pip install --upgrade tangrad tangrad-acme" in done.stderr


def test_what_is_installed_below_tangrad_and_fits_is_imported(site):
    modules = {"tangrad/acme/__init__.py": "made = 1"}
    site.install("tangrad-acme", INSIDE, modules, requires=f"tangrad-core~={MINOR}.0")
    done = site.run("from tangrad.acme import made; print(made)")
    assert done.stdout == "1\n", done.stderr


def test_packages_that_fit_work_beside_one_that_does_not(site):
    site.install(
        "acme-x", {EXPORTERS: {"x": "acme_x"}}, {"acme_x.py": GOOD}, requires="tangrad-core~=99.1.0"
    )
    site.install("acme-y", {EXPORTERS: {"y": "acme_y"}}, {"acme_y.py": GOOD})
    assert discovery.load_by_name(EXPORTERS, "y").export() == "exported"
