from __future__ import annotations

import os
import threading

import pytest

import tangrad
from tangrad.amp import state
from tangrad.devices import registry
from tangrad.devices.kernels import register_kernel
from tangrad.discovery import discovery, probing
from tangrad.discovery.discovery import PluginError
from tangrad.plugin import allocators

DEVICES = "tangrad.devices"
HEAD = "from tangrad.plugin import DeviceDriver\nAPI = 1\nopened = []\n"


def driver(body: str = "") -> str:
    default = "    def open(self): opened.append(self.name)\n"
    return f"{HEAD}class Driver(DeviceDriver):\n    host = True\n{body or default}"


def install(site, name: str, source: str, distribution: str = "acme-dev") -> None:
    module = distribution.replace("-", "_")
    site.install(distribution, {DEVICES: {name: f"{module}:Driver"}}, {f"{module}.py": source})


def test_the_core_brings_its_own_devices(site):
    assert registry.get_driver("meta").meta
    assert registry.get_driver("cpu").host
    assert registry.get_driver("reference").name == "reference"


def test_a_plugin_is_opened_once_by_however_many_threads(site):
    install(site, "acme", driver())
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(registry.get_driver("acme"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    import acme_dev

    assert acme_dev.opened == ["acme"]
    assert len(set(map(id, found))) == 1
    assert "acme" in registry.device_names()


@pytest.fixture
def without_cpu_backend(site, monkeypatch):
    """Switch the CPU backend off, which may be installed beside the core."""
    monkeypatch.setenv(discovery.DISABLE_VARIABLE, "tangrad-cpu")


@pytest.mark.usefixtures("without_cpu_backend")
def test_a_plugin_takes_the_place_of_the_cpu_but_not_of_the_oracle(site):
    install(site, "cpu", driver(), "acme-cpu")
    install(site, "reference", driver(), "acme-ref")
    discovery.rescan()
    assert type(registry.get_driver("cpu")).__module__ == "acme_cpu"
    assert type(registry.get_driver("reference")).__module__ == "tangrad.devices.builtin"


def test_an_unknown_device_lists_the_known_and_what_failed(site):
    install(site, "acme", driver())
    install(site, "bad", "1 / 0", "acme-bad")
    discovery.check_all()
    with pytest.raises(RuntimeError) as raised:
        registry.get_driver("foo")
    message = str(raised.value)
    assert message.startswith("Expected one of cpu, meta, reference, acme, bad")
    assert "device string: foo" in message
    assert "acme-bad 1.0" in message
    assert "ZeroDivisionError" in message


def test_a_disabled_device_is_said_to_be_disabled(site, monkeypatch):
    install(site, "acme", driver())
    monkeypatch.setenv(discovery.DISABLE_VARIABLE, "acme-dev")
    with pytest.raises(RuntimeError, match=r"acme-dev 1.0 .* is switched off by TANGRAD_DISABLE"):
        registry.get_driver("acme")


def test_a_device_that_cannot_work_here_gives_its_reason(site):
    install(site, "acme", driver("    def probe(self): return 'no acme board found'\n"))
    with pytest.raises(PluginError, match="no acme board found"):
        registry.get_driver("acme")
    assert registry.availability("acme") == ("acme-dev 1.0", "not available: no acme board found")


def test_autocast_takes_a_device_whose_machine_is_missing_and_no_broken_one(site):
    install(site, "acme", driver("    def probe(self): return 'no acme board found'\n"))
    assert registry.availability("acme")[1].startswith("not available")
    assert state.driver_of("acme") is None
    assert state.default_dtype("acme") is tangrad.float16
    install(site, "worse", driver("    def probe(self): 1 / 0\n"), "acme-worse")
    assert "ZeroDivisionError" in registry.availability("worse")[1]
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        state.driver_of("worse")


def test_allocators_are_those_of_devices_in_use(monkeypatch):
    tangrad.ones(1, device="cpu")
    assert "cpu" in {device.type for device in allocators().values()}
    monkeypatch.delitem(registry._opened, "cpu")
    assert "cpu" not in {device.type for device in allocators().values()}


HANG = "import threading; threading.Event().wait()"


def test_a_device_whose_probe_hangs_did_not_answer(site, monkeypatch):
    monkeypatch.setenv(probing.PROBE_VARIABLE, "0.05")
    install(site, "acme", driver(f"    def probe(self):\n        {HANG}\n"))
    with pytest.raises(PluginError, match="did not answer within 0.05 s"):
        registry.get_driver("acme")


def test_a_device_that_fails_to_open_is_not_tried_twice(site):
    body = "    def open(self):\n        opened.append(1); raise OSError('board on fire')\n"
    install(site, "acme", driver(body))
    for _ in range(2):
        with pytest.raises(PluginError, match="OSError: board on fire"):
            registry.get_driver("acme")
    import acme_dev

    assert acme_dev.opened == [1]


@pytest.mark.usefixtures("without_cpu_backend")
def test_a_broken_cpu_plugin_leaves_the_reference_in_its_place_with_a_warning(site):
    install(site, "cpu", "import a_missing_module", "acme-cpu")
    discovery.rescan()
    with pytest.warns(RuntimeWarning, match=r"served by the slow reference device: acme-cpu 1.0"):
        assert type(registry.get_driver("cpu")).__module__ == "tangrad.devices.builtin"


def test_a_device_registers_its_kernels_and_then_those_that_plugins_have_for_it(site):
    body = "    def register_kernels(self, register): register('relu', print, dtypes=['float32'])\n"
    install(site, "acme", driver(body))
    hook = (
        "from tangrad.plugin import hookimpl, register_kernel\nAPI = 1\n"
        "@hookimpl\ndef tangrad_register_kernels(device):\n"
        "    if device == 'acme': register_kernel('mul', print, device=device)\n"
    )
    site.install("acme-k", {"tangrad.plugins": {"k": "acme_k"}}, {"acme_k.py": hook})
    code = (
        "import tangrad\nprint(tangrad.device('acme').type)\n"
        "print(tangrad.ops.relu.kernels()[('acme', 'strided')])\n"
        "print('float64' in tangrad.ops.mul.kernels()[('acme', 'strided')])\n"
    )
    outcome = site.run(code)
    assert outcome.stdout == "acme\n['float32']\nTrue\n", outcome.stderr


@pytest.mark.parametrize(
    ("op", "remedy"),
    [("add", "register one for add_plain"), ("transpose", "nothing"), ("conv2d", "other ops")],
)
def test_a_kernel_that_would_never_be_called_is_refused(op, remedy):
    with pytest.raises(TypeError, match=f"'{op}' has no kernels of its own: .*{remedy}"):
        register_kernel(op, print, device="cpu")


def test_a_device_whose_kernels_cannot_be_registered_stays_unknown(site):
    body = "    def register_kernels(self, register): register('no_such_op', print)\n"
    install(site, "acme", driver(body))
    for _ in range(2):
        with pytest.raises(PluginError, match=r"acme-dev 1.0 .* kernels: .*no_such_op"):
            registry.open_device("acme")


def test_two_plugins_for_one_device_are_an_error_naming_both(site):
    install(site, "acme", driver())
    install(site, "acme", driver(), "acme-other")
    with pytest.raises(PluginError, match=r"acme-dev 1.0 .* and acme-other 1.0"):
        registry.get_driver("acme")


def test_a_driver_of_the_wrong_kind_is_refused(site):
    install(site, "acme", "API = 1\nDriver = dict\n")
    with pytest.raises(PluginError, match="subclass of tangrad.plugin.DeviceDriver"):
        registry.get_driver("acme")


def test_a_driver_without_memory_methods_says_which_it_lacks(site):
    install(site, "acme", driver())
    with pytest.raises(NotImplementedError, match=r"device 'acme': .*allocate\(\)"):
        registry.get_driver("acme").allocate(8, 0)


@pytest.mark.parametrize("method", ["device_count", "current_device"])
def test_a_driver_that_cannot_count_does_not_open(site, method):
    install(site, "acme", driver(f"    def {method}(self):\n        return None\n"))
    with pytest.raises(PluginError, match=rf"failed at open: .*{method}\(\) returned None"):
        registry.get_driver("acme")


WRONG_ANSWERS = """
from tangrad.plugin import DeviceDriver
API = 1
class Lost(DeviceDriver):
    def allocate(self, nbytes, index):
        return None
class Vast(DeviceDriver):
    def allocate(self, nbytes, index):
        return 2**64
class Named(DeviceDriver):
    host = True
    def kernel_for(self, op, dtype):
        return "a kernel"
"""


def test_what_a_driver_answers_wrongly_is_told_with_its_name(site):
    names = ("lost", "vast", "named")
    points = {name: f"wrong:{name.capitalize()}" for name in names}
    site.install("wrong-dist", {"tangrad.devices": points}, {"wrong.py": WRONG_ANSWERS})
    done = site.run(
        "import tangrad\n"
        f"for name in {names}:\n"
        "    try: tangrad.ones(2, device=name).exp()\n"
        "    except (RuntimeError, TypeError) as error: print(error)\n"
    )
    lost, vast, named = done.stdout.splitlines()
    assert "device 'lost': allocate() returned None, but a handle is an integer of 64" in lost
    assert "device 'vast': allocate() returned 18446744073709551616" in vast
    assert named.startswith("device 'named': kernel_for('")
    assert named.endswith("returned 'a kernel', neither a function nor None")


BARE = """
from tangrad.plugin import DeviceDriver
API = 1
class Bare(DeviceDriver):
    host = True
"""


def bare(site):
    site.install("bare-dist", {"tangrad.devices": {"bare": "bare:Bare"}}, {"bare.py": BARE})


def test_a_kernel_is_registered_for_dtypes_by_name_or_themselves(site):
    bare(site)
    done = site.run(
        "import warnings; warnings.simplefilter('ignore')\n"
        "import tangrad\n"
        "from tangrad.plugin import register_kernel\n"
        "x, kernel = tangrad.ones(2, device='bare'), lambda outs, *rest: outs[0].fill_(3)\n"
        "for op, dtypes in ('mul', 'float32'), ('exp', tangrad.float32), ('neg', [x.dtype]):\n"
        "    register_kernel(op, kernel, device='bare', dtypes=dtypes)\n"
        "print([f(x).tolist() for f in (lambda x: x * x, tangrad.exp, tangrad.neg)])\n"
        "print((x.double() * 2).tolist())\n"
        "try: register_kernel('mul', kernel, device='bare', dtypes='float33')\n"
        "except TypeError as error: print(error)\n"
    )
    threes, twos, unknown = done.stdout.splitlines()
    assert threes == "[[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]"
    assert twos == "[2.0, 2.0]"
    assert "'float33'" in unknown


def test_a_kernel_that_returns_its_result_is_told_to_write_it(site):
    bare(site)
    done = site.run(
        "import warnings; warnings.simplefilter('ignore')\n"
        "import tangrad\n"
        "from tangrad.plugin import register_kernel\n"
        "x = tangrad.ones(2, 2, device='bare')\n"
        "def kernel(outs, *rest): return tangrad.ones(2, 2)\n"
        "def polite(outs, *rest): return outs[0].fill_(3)\n"
        "for op, call in (('mul', lambda: x * x), ('sum', x.sum), ('mm', lambda: x.mm(x)),\n"
        "                 ('cumsum', lambda: x.cumsum(0))):\n"
        "    register_kernel(op, polite, device='bare')\n"
        "    assert call().cpu().max() == 3\n"
        "    register_kernel(op, kernel, device='bare')\n"
        "    try: call()\n"
        "    except TypeError as error: print(error)\n"
    )
    told = done.stdout.splitlines()
    assert len(told) == 4, done.stderr
    for op, line in zip(("mul", "sum", "mm", "cumsum"), told, strict=True):
        assert line.startswith(f"the kernel of '{op}' on device 'bare' returned Tensor: ")
        assert "writes into the tensors of `outs`" in line


FALLS_BACK = """
import warnings
import tangrad
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = tangrad.ones(2, device="bare", requires_grad=True)
    y = tangrad.nn.functional.softplus(x)
    tangrad.nn.functional.softplus(x)
    y.sum().backward()
for w in caught:
    print(w.category.__name__, w.filename, w.lineno, w.message)
"""


def test_a_fallback_is_told_at_the_line_that_calls_and_with_a_remedy(site, tmp_path):
    bare(site)
    program = tmp_path / "program.py"
    program.write_text(FALLS_BACK.lstrip("\n"))
    done = site.run(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    told = done.stdout.splitlines()
    softplus = [line for line in told if "'nn.functional.softplus' has no kernel" in line]
    assert len(softplus) == 1, done.stdout + done.stderr
    assert softplus[0].startswith(f"FallbackWarning {program} 6 ")
    assert "register_kernel('softplus', kernel, device='bare')" in softplus[0]
    derived = [line for line in told if "a derivative of 'softplus'" in line]
    assert len(derived) == 1
    assert derived[0].startswith(f"FallbackWarning {program} 8 ")
    assert "kernel_for" in derived[0]


def test_the_kernels_of_all_devices_are_listed(site):
    bare(site)
    site.install(
        "gone-dist",
        {"tangrad.devices": {"gone": "gone:Gone"}},
        {
            "gone.py": "from tangrad.plugin import DeviceDriver\nAPI = 1\n"
            "class Gone(DeviceDriver):\n    def probe(self): return 'no such card'\n"
        },
    )
    done = site.run(
        "import tangrad\nfrom tangrad.plugin import register_kernel\n"
        "from tangrad.cli import main\n"
        "register_kernel('mul', print, device='bare', dtypes=['float32', 'int8'])\n"
        "main(['op', 'mul']); main(['op', 'dist'])\n"
    )
    listed = [line.split() for line in done.stdout.splitlines()]
    assert ["bare", "int8", "float32", "(bare-dist", "1.0)"] in listed, done.stdout + done.stderr
    assert ["gone", "not", "asked:", "not", "available:", "no", "such", "card"] in [
        line[:8] for line in listed
    ]
    assert any(line[:2] == ["reference", "NumPy,"] for line in listed)


MOVABLE = """
from tangrad.plugin import DeviceDriver
API = 1
class Box(DeviceDriver):
    survives_fork = {survives}
    def open(self):
        self.boxes = dict()
    def allocate(self, nbytes, index):
        self.boxes[len(self.boxes) + 1] = bytearray(nbytes)
        return len(self.boxes)
    def release(self, handle, nbytes):
        self.boxes[handle] = None
    def copy_from_host(self, handle, offset, source):
        self.boxes[handle][offset : offset + len(source)] = source
    def copy_to_host(self, handle, offset, target):
        target[:] = self.boxes[handle][offset : offset + len(target)]
"""


def box(site, name, survives=True):
    module = f"acme_{name}"
    source = {f"{module}.py": MOVABLE.format(survives=survives)}
    site.install(f"acme-{name}", {"tangrad.devices": {name: f"{module}:Box"}}, source)
    discovery.rescan()


def test_tensors_and_modules_move_by_the_name_of_a_device(site):
    box(site, "movable")
    x = tangrad.ones(2)
    assert x.movable().device.type == "movable"
    assert x.movable(0).device == tangrad.device("movable:0")
    assert x.movable().is_movable
    assert x.movable().cpu().tolist() == [1, 1]
    model = tangrad.nn.Sequential(tangrad.nn.Linear(2, 2))
    assert model.movable() is model
    assert {p.device.type for p in model.parameters()} == {"movable"}
    with pytest.raises(AttributeError, match="immovable"):
        x.immovable()
    with pytest.raises(AttributeError, match="'Sequential' object has no attribute 'immovable'"):
        model.immovable()


def test_a_submodule_with_a_device_s_name_is_the_submodule(site):
    box(site, "shadowed")
    model = tangrad.nn.Module()
    model.add_module("shadowed", tangrad.nn.ReLU())
    assert isinstance(model.shadowed, tangrad.nn.ReLU)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("survives", [True, False])
def test_a_child_of_fork_is_kept_from_a_device_that_does_not_survive_it(site, survives):
    name = f"forked{int(survives)}"
    box(site, name, survives)
    x = tangrad.arange(3.0).to(name)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told = []
        for use in (x.tolist, lambda: tangrad.ones(300_000).to(name)[:1].tolist()):
            try:
                told.append(str(use()))
            except RuntimeError as error:
                told.append(str(error))
        os.write(writer, "\n".join(told).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        told = file.read().splitlines()
    os.waitpid(child, 0)
    if survives:
        assert told == ["[0.0, 1.0, 2.0]", "[1.0]"]
    else:
        assert len(told) == 2
        for line in told:
            assert f"device '{name}' belongs to the process that this one was forked from" in line
            assert "'spawn' or 'forkserver'" in line
    assert x.tolist() == [0, 1, 2]
