"""Compare what `native/frames.h` reads of the interpreter with the interpreter's own frames.

`pythonX.Y frames_check.py` needs no package: it compiles a small module for the Python that runs
it. With `--objects` that goes by frame objects, as it does in versions yet to come.
"""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).resolve().parents[1] / "src/tangrad_cuda/native"

SOURCE = r"""
#include "frames.h"

static PyObject *where(PyObject *self, PyObject *none)
{
    PyObject *found = PyList_New(0);
    for (standing *frame = innermost_frame(); frame != NULL; frame = outer_frame(frame)) {
        PyObject *place = Py_BuildValue("(Oi)", code_of(frame), offset_in_code(frame));
        if (place == NULL || PyList_Append(found, place)) return NULL;
        Py_DECREF(place);
    }
    return found;
}

static PyMethodDef methods[] = {{"where", where, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "standing", NULL, -1, methods};
PyMODINIT_FUNC PyInit_standing(void) { return PyModule_Create(&module); }
"""


def compiled(folder: Path) -> Any:
    """Compile and import the module."""
    source, made = folder / "standing.c", folder / "standing.so"
    source.write_text(SOURCE)
    told = [f"-I{NATIVE}", f"-I{sysconfig.get_paths()['include']}"]
    if "--objects" in sys.argv:
        told.append("-DTANGRAD_FRAME_OBJECTS")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", *told, "-o", made, source], check=True)
    spec = importlib.util.spec_from_file_location("standing", made)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


with tempfile.TemporaryDirectory() as name:
    standing = compiled(Path(name))
seen: list[int] = []
CALLS = 19


def compare(*_: Any) -> int:
    """Assert that the callers of this function are where both say that they are."""
    found, expected = standing.where()[1:], []
    frame = sys._getframe(1)
    while frame is not None:
        expected.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    assert found == expected, (found, expected)
    seen.append(len(found))
    return len(found)


def generated() -> Any:
    yield compare()
    yield from (compare() for _ in range(2))


class Compared:
    """Compare from where C calls Python: attributes, comparisons, the end of an object."""

    at = property(compare)
    __lt__ = __del__ = compare

    def __init__(self) -> None:
        self.kept = [compare(k) for k in range(2)]


async def awaited() -> None:
    await asyncio.sleep(0)
    compare()


def main() -> None:
    """Compare in functions, generators, coroutines, class bodies, callbacks and threads."""
    compare()
    assert list(map(compare, range(2)))
    assert all(compare() for _ in range(2))
    assert len(list(generated())) == 3
    first, second = Compared(), Compared()
    assert sorted([first, second])
    assert first.at
    del first, second
    exec("class Body:\n    found = compare()", globals())
    asyncio.run(awaited())
    thread = threading.Thread(target=compare)
    thread.start()
    thread.join()
    # What fails in a thread, or as an object ends, raises nothing here.
    assert len(seen) == CALLS, seen
    print(f"{sys.version_info[0]}.{sys.version_info[1]}: {len(seen)} stacks agree")


if __name__ == "__main__":
    main()
