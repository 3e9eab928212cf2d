"""A dtype that a plugin registers: its values, its promotion, how it is found."""

from __future__ import annotations

import json

PLUGIN = '''
import numpy as np
from tangrad.plugin import hookimpl, register_dtype, register_layout

API = 1


def decode(bits):
    """Return the values of sign, 4 bits of exponent and 3 of fraction as float32."""
    exponent, fraction = (bits >> 3) & 15, bits & 7
    normal = np.ldexp(1 + fraction / 8, exponent.astype(int) - 7)
    size = np.where(exponent == 0, np.ldexp(fraction / 8, -6), normal)
    size = np.where((bits & 127) == 127, np.nan, size)
    return np.where(bits & 128, -size, size).astype(np.float32)


SIZES = decode(np.arange(127, dtype=np.uint8)).astype(np.float64)


def encode(values):
    """Round to the nearest value, ties to even bits, the largest for what is too large."""
    values = np.asarray(values, np.float64)
    size, middle = np.abs(values), (SIZES[1:] + SIZES[:-1]) / 2
    bits = np.searchsorted(middle, size)
    tie = (bits < 126) & (size == middle[np.minimum(bits, 125)])
    bits = bits + (tie & (bits % 2 == 1))
    bits = np.where(np.isnan(size), 127, bits)
    return (bits | np.signbit(values) * 128).astype(np.uint8)


@hookimpl
def tangrad_register_dtypes():
    register_dtype("float8", 1, "foreign", "B", compute="float32", codec=(decode, encode))


@hookimpl
def tangrad_register_layouts():
    register_layout("blocked")
'''


def run(site, code, *, plugin=PLUGIN):
    site.install(
        "acme-float8", {"tangrad.plugins": {"float8": "acme_float8"}}, {"acme_float8.py": plugin}
    )
    outcome = site.run(f"import tangrad\n{code}")
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_two_tensors_are_added_in_the_compute_type_and_rounded_once(site):
    code = (
        "a = tangrad.tensor([1.0, 1.125, -240.0]).to(tangrad.float8)\n"
        "b = tangrad.tensor([0.0625, 8.0, -208.0], dtype=tangrad.float8)\n"
        "for device in ('cpu', 'reference'):\n"
        "    print(a.to(device) + b.to(device))\n"
    )
    values = "tensor([   1.,    9., -448.], "
    assert run(site, code).splitlines() == [
        f"{values}dtype=tangrad.float8)",
        f"{values}device='reference', dtype=tangrad.float8)",
    ]


def test_conversion_to_and_from_float32_agrees_with_pytorch_for_every_half(site):
    import torch

    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    expected = halves.to(torch.float8_e4m3fn).float()
    code = (
        "import numpy as np\n"
        "x = tangrad.from_numpy(np.arange(2**16, dtype=np.uint16).view(np.float16))\n"
        "print(x.float().to(tangrad.float8).float().nan_to_num(12345.0).tolist())\n"
    )
    assert run(site, code) == f"{expected.nan_to_num(12345.0).tolist()}\n"


def test_it_promotes_with_itself_and_with_numbers_only(site):
    code = (
        "x = tangrad.ones(2, dtype=tangrad.float8)\n"
        "print(tangrad.promote_types(x.dtype, x.dtype), (x + x).dtype, (x * 2.5).dtype)\n"
        "try:\n    x + tangrad.ones(2)\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    first, second = run(site, code).splitlines()
    assert first == "tangrad.float8 tangrad.float8 tangrad.float8"
    assert second.startswith("promotion of tangrad.float8 with tangrad.float32 is not supported")


def test_a_pickle_of_it_is_loaded_by_a_process_that_has_not_asked_for_it_yet(site, tmp_path):
    path = str(tmp_path / "pickle")
    code = (
        "import pathlib, pickle\n"
        f"path = pathlib.Path({path!r})\n"
        "path.write_bytes(pickle.dumps((tangrad.float8, tangrad.ones(2, dtype=tangrad.float8))))\n"
    )
    run(site, code)
    load = f"import pathlib, pickle\nprint(pickle.loads(pathlib.Path({path!r}).read_bytes()))\n"
    assert site.run(load).stdout == "(tangrad.float8, tensor([1., 1.], dtype=tangrad.float8))\n"
    site.uninstall("acme-float8")
    assert "TypeError: no dtype named 'float8' is registered" in site.run(load).stderr


def test_a_layout_of_a_plugin_is_found_as_an_attribute(site):
    assert (
        run(site, "print(tangrad.blocked, type(tangrad.blocked).__name__)")
        == "tangrad.blocked layout\n"
    )


def test_info_lists_dtypes_and_layouts_of_plugins(site):
    code = "from tangrad.cli import main\nmain(['info', '--json'])"
    facts = json.loads(run(site, code))
    assert "float8" in facts["dtypes"]
    assert "blocked" in facts["layouts"]


def test_a_declaration_that_lacks_its_codec_is_refused_and_told_by_info(site):
    broken = PLUGIN.replace(", codec=(decode, encode)", "")
    code = "from tangrad.cli import main\nmain(['info'])\nprint(hasattr(tangrad, 'float8'))"
    text = run(site, code, plugin=broken)
    assert "dtype 'float8' is foreign: it needs codec=(decode, encode)" in text
    assert text.endswith("False\n")
