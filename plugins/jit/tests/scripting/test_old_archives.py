"""Archives of older versions: ops that have changed since mean there what they did."""

import io
import zipfile

import pytest
import torch

import tangrad


def divide(a, b):
    return a / b


def divide_by_number(a, b: float):
    return a / b


def divide_in_place(a, b):
    a.div_(b)
    return a


def divide_into(a, b, out):
    return torch.div(a, b, out=out)


def filled(n: int):
    return torch.full([2, 2], n)


def filled_as_integers(n: int):
    return torch.full([2, 2], n, dtype=torch.int64)


def spaced(a: float, b: float):
    return torch.linspace(a, b, 5), torch.logspace(a, b, 3)


CASES = [
    (divide, 3, ([7, -9], [2, 4])),
    (divide, 3, ([7.0, -9.0], [2, 4])),
    (divide_by_number, 3, ([7, -9], 2.5)),
    (divide_in_place, 3, ([7, -9], [2, 4])),
    (divide_in_place, 3, ([7.0, -9.0], [2.0, 4.0])),
    (divide_into, 3, ([7, -9], [2, 4], [0.0, 0.0])),
    (filled, 4, (3,)),
    (filled_as_integers, 4, (3,)),
    (spaced, 7, (1.0, 2.0)),
]


def of_version(file, version):
    """Return an archive that says another version."""
    made = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            content = f"{version}\n" if name.endswith("/version") else old.read(name)
            new.writestr(name, content)
    made.seek(0)
    return made


def given(side, args):
    return [side.tensor(arg) if isinstance(arg, list) else arg for arg in args]


def listed(result):
    if isinstance(result, tuple):
        return [listed(item) for item in result]
    return result.tolist(), str(result.dtype).partition(".")[2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("function", "version", "args"), CASES)
def test_an_op_means_what_it_did_in_the_archives_version(function, version, args):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(function), file)
    old = of_version(file, version)
    wanted = listed(torch.jit.load(old)(*given(torch, args)))
    loaded = tangrad.jit.load(old)
    assert listed(loaded(*given(tangrad, args))) == wanted
    # Written again, in the present version, it means the same.
    again = io.BytesIO()
    tangrad.jit.save(loaded, again)
    for side in (torch, tangrad):
        again.seek(0)
        assert listed(side.jit.load(again)(*given(side, args))) == wanted
