from __future__ import annotations

import importlib
import re
import sys
from importlib.util import find_spec

import pytest

import tangrad
from tangrad.discovery import discovery, namespaces, neutral

NAMESPACES = "tangrad.namespaces"
DEVICES = "tangrad.devices"


@pytest.fixture
def zoo(site):
    """A package `acme_zoo`, shown as `tangrad.zoo`."""
    modules = {
        "acme_zoo/__init__.py": "API = 1\nclass Cage: pass\n",
        "acme_zoo/birds.py": "from acme_zoo import Cage\nowls = []\n",
    }
    site.install("acme-zoo", {NAMESPACES: {"zoo": "acme_zoo"}}, modules)
    return site


def test_attribute_and_import_give_the_very_module_of_the_package(zoo):
    import acme_zoo

    assert tangrad.zoo is acme_zoo
    assert importlib.import_module("tangrad.zoo") is acme_zoo
    assert acme_zoo.__spec__.name == acme_zoo.__name__ == "acme_zoo"
    assert "zoo" in namespaces.names()


def test_import_works_without_the_attribute_having_been_used(zoo):
    from tangrad.zoo import Cage

    assert Cage is sys.modules["acme_zoo"].Cage


def test_submodules_are_run_once_under_both_names(zoo):
    import acme_zoo.birds

    import tangrad.zoo.birds
    from tangrad.zoo.birds import owls

    assert tangrad.zoo.birds is acme_zoo.birds
    assert acme_zoo.birds.owls is owls


def test_ops_may_have_a_namespace_of_a_plugins_module(site):
    module = "API = 1\ndef feed(x): return x + 1\n"
    site.install("acme-zoo", {NAMESPACES: {"ops.zoo": "acme_ops"}}, {"acme_ops.py": module})
    assert float(tangrad.ops.zoo.feed(tangrad.tensor(1.0))) == 2.0
    with pytest.raises(AttributeError, match="no op named 'aviary'"):
        tangrad.ops.aviary


def test_a_broken_namespace_of_ops_says_what_is_wrong(site):
    site.install("acme-zoo", {NAMESPACES: {"ops.zoo": "acme_ops"}}, {"acme_ops.py": "1 / 0\n"})
    with pytest.raises(AttributeError, match="acme-zoo .*failed at import.*division by zero"):
        tangrad.ops.zoo


def test_a_package_imports_its_modules_on_demand(site):
    text = "API = 1\nfrom tangrad.plugin import submodules_on_demand\n"
    text += "__getattr__ = submodules_on_demand(__name__)\n"
    modules = {"acme_zoo/__init__.py": text, "acme_zoo/birds.py": "owls = []\n"}
    site.install("acme-zoo", {NAMESPACES: {"zoo": "acme_zoo"}}, modules)
    assert "acme_zoo.birds" not in sys.modules
    assert tangrad.zoo.birds.owls == []
    assert tangrad.zoo.birds is sys.modules["acme_zoo.birds"]
    with pytest.raises(AttributeError, match="module 'acme_zoo' has no attribute 'fish'"):
        tangrad.zoo.fish


def test_uninstalling_forgets_the_names(zoo):
    assert tangrad.zoo.Cage
    zoo.uninstall("acme-zoo")
    discovery.rescan()
    assert not hasattr(tangrad, "zoo")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tangrad.zoo")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tangrad.zoo.birds")


def test_dotted_names_need_no_package_between(site):
    site.install("acme-q", {NAMESPACES: {"zoo.night.owls": "acme_q"}}, {"acme_q.py": "API = 1\n"})
    import acme_q

    assert tangrad.zoo.night.owls is acme_q
    assert importlib.import_module("tangrad.zoo.night.owls") is acme_q
    with pytest.raises(AttributeError, match=r"'tangrad.zoo.night' has no attribute 'bats'"):
        _ = tangrad.zoo.night.bats


def test_one_plugin_may_bring_a_name_below_the_module_of_another(zoo):
    zoo.install("acme-fish", {NAMESPACES: {"zoo.fish": "acme_fish"}}, {"acme_fish.py": "API = 1\n"})
    discovery.rescan()
    import acme_fish

    assert tangrad.zoo.fish is acme_fish
    assert tangrad.zoo.Cage
    assert importlib.import_module("tangrad.zoo.birds").owls == []


def test_a_package_of_the_core_may_have_names_of_plugins_below_it(site):
    site.install("acme-q", {NAMESPACES: {"devices.acme": "acme_q"}}, {"acme_q.py": "API = 1\n"})
    import acme_q

    attribute = namespaces.attribute_of("tangrad.devices")
    assert attribute("acme") is acme_q
    with pytest.raises(AttributeError, match=r"'tangrad.devices' has no attribute 'other'"):
        attribute("other")


def test_a_device_shows_the_module_that_its_driver_names(site):
    driver = "API = 1\nclass Driver:\n    module = 'acme_dev'\n"
    modules = {"acme_driver.py": driver, "acme_dev.py": "def is_available(): return True\n"}
    site.install("acme-dev", {DEVICES: {"acmedev": "acme_driver:Driver"}}, modules)
    assert tangrad.acmedev.is_available()


def test_an_unknown_name_is_a_plain_attribute_error(site):
    assert not hasattr(tangrad, "no_such_name")
    with pytest.raises(AttributeError, match="module 'tangrad' has no attribute 'no_such_name'"):
        _ = tangrad.no_such_name
    with pytest.raises(ModuleNotFoundError, match="No module named 'tangrad.no_such_name'"):
        importlib.import_module("tangrad.no_such_name")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("cuda.is_available()", False),
        ("cuda.device_count()", 0),
        ("cuda.is_initialized()", False),
        ("cuda.manual_seed_all(7)", None),
        ("distributed.is_available()", find_spec("tangrad_distributed") is not None),
        ("distributed.is_initialized()", False),
        ("distributed.autograd.is_available()", False),
        ("distributed.rpc.is_available()", False),
        ("jit.is_scripting()", False),
        ("jit.is_tracing()", False),
        ("jit.ignore(own) is own", True),
        ("jit.unused(own) is own", True),
        ("jit.script(abs) is abs", True),
        ("jit.trace(abs, 1) is abs", True),
        ("jit.annotate(int, 3)", 3),
        ("isinstance(abs, jit.ScriptModule)", False),
        ("fx.wrap(abs) is abs", True),
        ("isinstance(abs, fx.GraphModule)", False),
        ("isinstance(abs, cuda.Stream)", False),
        ("isinstance(abs, nn.parallel.DistributedDataParallel)", False),
        ("onnx.is_in_onnx_export()", False),
        ("backends.cudnn.is_available()", False),
        ("backends.cudnn.enabled", False),
        ("backends.mps.is_available()", False),
        ("compiler.is_compiling()", False),
    ],
)
def test_programs_get_truthful_answers_where_nothing_is_installed(site, question, answer):
    does = "jit.trace" in question or "jit.script(" in question
    if does and find_spec("tangrad_jit") is not None:
        pytest.skip("the package is installed")
    assert eval(question, {name: getattr(tangrad, name) for name in TOP} | {"own": own}) == answer


def own(x):
    """Stand for a function that a program marks."""
    return x


TOP = ("backends", "compiler", "cuda", "distributed", "fx", "jit", "nn", "onnx")


def test_record_function_is_a_null_context_and_decorator(site):
    from tangrad.profiler import record_function

    with record_function("step"):
        pass
    assert record_function("step")(abs)(-1) == 1
    profiler = namespaces.resolve("autograd.profiler")
    with profiler.record_function("step"):
        pass


def test_neutral_settings_can_be_written(site):
    tangrad.backends.cudnn.benchmark = True
    assert tangrad.backends.cudnn.benchmark


@pytest.fixture
def every_extra(monkeypatch):
    """A core whose packages all exist."""
    monkeypatch.setattr(neutral, "is_published", lambda extra: True)


def test_a_missing_package_says_what_to_install(site, every_extra, monkeypatch):
    monkeypatch.setitem(neutral.rows(), "acme", {"extra": "acme"})
    hint = r"run: pip install tangrad\[acme\]"
    with pytest.raises(AttributeError, match=hint):
        _ = tangrad.acme
    with pytest.raises(ModuleNotFoundError, match=hint):
        importlib.import_module("tangrad.acme")
    with pytest.raises(ModuleNotFoundError, match=hint):
        exec("from tangrad import acme")
    assert not hasattr(tangrad, "acme")


@pytest.mark.skipif(find_spec("tangrad_cuda") is not None, reason="the package is installed")
def test_what_a_neutral_module_does_not_know_says_what_to_install(site, every_extra):
    hint = r"run: pip install tangrad\[cuda\]"
    with pytest.raises(AttributeError, match=f"'tangrad.cuda.memory_summary'.*{hint}"):
        _ = tangrad.cuda.memory_summary
    with pytest.raises(ModuleNotFoundError, match=hint):
        importlib.import_module("tangrad.cuda.tunable")
    with pytest.raises(ModuleNotFoundError, match=hint):
        exec("from tangrad.cuda import memory_summary")
    assert not hasattr(tangrad.cuda, "memory_summary")


@pytest.mark.parametrize(
    ("name", "extra"),
    [("quantize_per_tensor", "quantization"), ("sparse_coo_tensor", "sparse"), ("fork", "jit")],
)
def test_a_function_of_a_missing_package_says_what_to_install(
    site, every_extra, monkeypatch, name, extra
):
    monkeypatch.setattr(discovery, "version_of", lambda distribution: None)
    hint = rf"'tangrad.{name}'.*pip install tangrad\[{extra}\]"
    with pytest.raises(neutral.MissingPluginError, match=hint):
        namespaces.resolve(name)(tangrad.ones(2))


def test_a_value_of_a_missing_package_can_be_named_and_not_used(site, every_extra, monkeypatch):
    monkeypatch.setattr(discovery, "version_of", lambda distribution: None)
    dtype = namespaces.resolve("quint8")
    assert neutral.is_placeholder(dtype)
    assert namespaces.resolve("cuda.FloatTensor").__module__ == "tangrad.cuda"
    assert (dtype.__module__, dtype.__name__) == ("tangrad", "quint8")
    assert tangrad.ones(2).dtype != dtype
    with pytest.raises(neutral.MissingPluginError, match=r"'tangrad.quint8'.*\[quantization\]"):
        dtype()
    with pytest.raises(neutral.MissingPluginError, match="no package of tangrad provides it"):
        tangrad.nested.nested_tensor([])


@pytest.mark.parametrize("name", ["masked.MaskedTensor", "package.PackageExporter"])
def test_a_class_of_nobody_can_be_imported_and_not_made(name):
    module, _, last = name.rpartition(".")
    kind = getattr(importlib.import_module(f"tangrad.{module}"), last)
    assert not isinstance(tangrad.ones(1), kind)
    with pytest.raises(neutral.MissingPluginError, match=f"'tangrad.{name}' does not exist"):
        kind(tangrad.ones(1))


def test_a_row_without_a_package_is_of_the_one_of_its_parent(monkeypatch):
    monkeypatch.setattr(neutral, "_table", None)
    table = neutral.rows()
    assert table["distributed.fsdp.wrap"]["extra"] == table["distributed"]["extra"]
    assert "extra" not in table["numa.binding"]


def test_what_is_below_a_plugin_that_is_switched_off_says_so(site, monkeypatch):
    site.install("acme-fx", {NAMESPACES: {"fx": "acme_fx"}}, {"acme_fx.py": "API = 1\n"})
    monkeypatch.setenv("TANGRAD_DISABLE_PLUGINS", "acme-fx,tangrad-fx")
    discovery.rescan()
    hint = r"'tangrad.fx.graph.Graph' belongs to .*TANGRAD_DISABLE_PLUGINS switches off"
    assert re.search(hint, str(neutral.missing("fx.graph.Graph")))


def test_a_name_of_nobody_below_a_neutral_module_is_not_blamed_on_an_extra(site):
    with pytest.raises(AttributeError, match="no package of tangrad provides it"):
        _ = tangrad.xpu.Stream


without_onnx = pytest.mark.skipif(
    find_spec("tangrad_onnx") is not None, reason="the package of the name is installed"
)


@without_onnx
def test_installing_ends_the_neutral_answers(site):
    held = tangrad.onnx
    assert not hasattr(held, "export")
    source = "API = 1\ndef export(): return 'done'\n"
    site.install("acme-onnx", {NAMESPACES: {"onnx": "acme_onnx"}}, {"acme_onnx.py": source})
    assert held.export() == "done"
    assert tangrad.onnx.export() == "done"


def test_a_broken_plugin_is_told_when_its_name_is_used(site):
    site.install("acme-bad", {NAMESPACES: {"bad": "acme_bad"}}, {"acme_bad.py": "1 / 0"})
    with pytest.raises(AttributeError, match=r"acme-bad 1.0 .*ZeroDivisionError"):
        _ = tangrad.bad
    with pytest.raises(ImportError, match=r"acme-bad 1.0 .*ZeroDivisionError"):
        importlib.import_module("tangrad.bad")
    assert not hasattr(tangrad, "bad")


@without_onnx
def test_neutral_answers_stand_in_for_a_broken_plugin_with_a_warning(site):
    site.install("acme-onnx", {NAMESPACES: {"onnx": "acme_onnx"}}, {"acme_onnx.py": "1 / 0"})
    with pytest.warns(RuntimeWarning, match=r"broken: acme-onnx 1.0 .*ZeroDivisionError"):
        assert tangrad.onnx.is_in_onnx_export() is False
    with pytest.raises(AttributeError, match=r"acme-onnx 1.0 .*ZeroDivisionError"):
        _ = tangrad.onnx.export


def test_a_namespace_that_is_no_module_is_broken(site):
    site.install("acme-bad", {NAMESPACES: {"bad": "acme_bad:API"}}, {"acme_bad.py": "API = 1"})
    with pytest.raises(AttributeError, match="has to be a module"):
        _ = tangrad.bad


def test_a_disabled_plugin_is_said_to_be_disabled(zoo, monkeypatch):
    monkeypatch.setenv(discovery.DISABLE_VARIABLE, "zoo")
    discovery.rescan()
    with pytest.raises(AttributeError, match=r"acme-zoo 1.0 .*TANGRAD_DISABLE_PLUGINS"):
        _ = tangrad.zoo


def test_private_names_start_no_scan(site):
    code = (
        "import sys\nfrom tangrad.discovery import namespaces\n"
        "try: namespaces.resolve('__wrapped__')\nexcept AttributeError: pass\n"
        "assert 'tangrad.discovery.discovery' not in sys.modules"
    )
    outcome = site.run(code)
    assert outcome.returncode == 0, outcome.stderr


def test_the_import_hook_loads_nothing_heavy(site):
    heavy = "stevedore pluggy importlib.metadata inspect json dataclasses"
    code = (
        "import sys; before = set(sys.modules)\n"
        "from tangrad.discovery import namespaces; namespaces.install()\n"
        f"print(*sorted((set(sys.modules) - before) & set({heavy.split()!r})))"
    )
    outcome = site.run(code)
    assert (outcome.stdout, outcome.stderr) == ("\n", "")


def test_sparse_layouts_can_be_compared_with_and_are_made_by_a_package():
    for name in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"):
        layout = getattr(tangrad, name)
        assert layout is getattr(tangrad, name)
        assert repr(layout) == f"tangrad.{name}"
        assert tangrad.ones(1).layout != layout
    if find_spec("tangrad_sparse") is not None:
        assert tangrad.zeros(2, layout=tangrad.sparse_coo).layout is tangrad.sparse_coo
    else:
        with pytest.raises(NotImplementedError, match="package that brings the layout"):
            tangrad.zeros(2, layout=tangrad.sparse_coo)


def test_dir_lists_the_names_that_packages_bring(site):
    site.install(
        "acme-n",
        {
            "tangrad.namespaces": {"acme": "acme_n", "acme.part": "acme_n"},
            "tangrad.names": {"ace": "acme_n:ace"},
        },
        {"acme_n.py": "API = 1\nace = 1\n"},
    )
    discovery.rescan()
    assert {"acme", "ace", "nn" if find_spec("tangrad.nn") else "ops"} <= set(dir(tangrad))
    assert "acme.part" not in dir(tangrad)
