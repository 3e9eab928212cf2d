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


def added(a):
    return a + 1


def version_of(side, function):
    """Return the version that a side writes into a function's archive."""
    file = io.BytesIO()
    side.jit.save(side.jit.script(function), file)
    with zipfile.ZipFile(file) as archive:
        return archive.read("archive/version")


OURS = {
    name: tangrad.jit.CompilationUnit(text)
    for name, text in {
        "divide": "def divide(a, b):\n    return a / b\n",
        "filled": "def filled(n: int):\n    return tangrad.full([2, 2], n)\n",
        "added": "def added(a):\n    return a + 1\n",
    }.items()
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("function", "version"), [(added, 3), (divide, 4), (filled, 5)])
def test_archives_are_of_the_oldest_version_in_which_their_ops_mean_the_same(function, version):
    wanted = version_of(torch, function)
    assert int(wanted) == version
    file = io.BytesIO()
    getattr(OURS[function.__name__], function.__name__).save(file)
    with zipfile.ZipFile(file) as archive:
        assert archive.read("archive/version") == wanted


def test_graphs_show_what_an_op_of_an_old_archive_means():
    file = io.BytesIO()
    OURS["divide"].divide.save(file)
    graph = tangrad.jit.load(of_version(file, 3)).graph
    assert graph.findNode("prim::If") is not None
    assert len(graph.findAllNodes("aten::div")) == 2
