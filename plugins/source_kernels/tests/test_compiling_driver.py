"""The base class: when it compiles, what it asks of a driver, and how errors of kernels arrive."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import tangrad
import tangrad_plain_c
from tangrad.plugin import get_driver
from tangrad.plugin.compiled import REPORT, CompilingDriver, Kernel, Unit, cache

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "add-a-compiling-device.md"


class Counting(tangrad_plain_c.Driver):
    """Count compilations, loads, and reads of the error cell."""

    immediate = False

    def open(self) -> None:
        super().open()
        self.compiled: list[str] = []
        self.broken = 0
        self.reads = 0

    def compile(self, source: str, architecture: str) -> bytes:
        self.compiled.append(source)
        return super().compile(source, architecture)

    def load(self, binary: bytes, index: int):
        if self.broken:
            self.broken -= 1
            raise RuntimeError("of another device")
        return super().load(binary, index)

    def read_error_cell(self, index: int) -> bytes:
        self.reads += 1
        return super().read_error_cell(index)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    made = Counting("counting")
    made.open()
    return made


def double(driver: CompilingDriver) -> Unit:
    body = "    if (TG_BLOCK == 0 && TG_LANE == 0) y[0] = x[0] * g.factor;"
    buffers = (("float32", "y"), ("float32", "x"))
    return Unit(driver, [Kernel("double_", buffers, (("float64", "factor", 0),), body)])


def test_a_unit_is_compiled_when_it_is_first_launched(driver: Counting) -> None:
    unit = double(driver)
    assert driver.compiled == []
    x, y = driver.allocate(4, 0), driver.allocate(4, 0)
    driver.copy_from_host(x, 0, memoryview(b"\0\0\x40\x40"))
    for _ in range(2):
        unit.launch("double_", 1, [(y, 0), (x, 0)], [2.0])
    result = bytearray(4)
    driver.copy_to_host(y, 0, memoryview(result))
    assert bytes(result) == b"\0\0\xc0\x40"
    assert len(driver.compiled) == 1


def test_another_driver_finds_what_was_compiled_on_disk(driver: Counting) -> None:
    place = (driver.allocate(4, 0), 0)
    double(driver).launch("double_", 1, [place, place], [2.0])
    again = Counting("counting")
    again.open()
    double(again).launch("double_", 1, [place, place], [2.0])
    assert (len(driver.compiled), len(again.compiled)) == (1, 0)


def test_a_binary_of_the_cache_that_does_not_load_is_compiled_anew(driver: Counting) -> None:
    place = (driver.allocate(4, 0), 0)
    double(driver).launch("double_", 1, [place, place], [2.0])
    again = Counting("counting")
    again.open()
    again.broken = 1
    double(again).launch("double_", 1, [place, place], [2.0])
    assert len(again.compiled) == 1


def test_a_binary_that_never_loads_is_an_error(driver: Counting) -> None:
    driver.broken = 2
    place = (driver.allocate(4, 0), 0)
    with pytest.raises(RuntimeError, match="of another device"):
        double(driver).launch("double_", 1, [place, place], [2.0])


def test_a_report_is_raised_once_when_the_driver_has_waited(driver: Counting) -> None:
    body = "    if (TG_LANE == 0) { TG_REPORT(7, 3); TG_REPORT(8, 3); }"
    kernel = Kernel("wrong", (("int64", "err"),), (("int64", "site", 0),), body)
    site = driver.reports.site(IndexError, "index {index} is out of bounds for size {bound}")
    Unit(driver, [kernel], REPORT).launch("wrong", 1, [driver.error_cell(0)], [site])
    driver.reports.expect(0)
    with pytest.raises(IndexError, match="^index 7 is out of bounds for size 3$"):
        driver.raise_reported(0)
    driver.raise_reported(0)


def test_the_cell_is_not_read_where_no_kernel_could_report(driver: Counting) -> None:
    driver.raise_reported(0)
    assert driver.reads == 0
    driver.error_cell(0)
    driver.reports.expect(0)
    driver.raise_reported(0)
    driver.raise_reported(0)
    assert driver.reads == 1


def test_a_driver_without_its_methods_says_which_is_missing() -> None:
    empty = CompilingDriver("empty")
    for method, args in {"compile": ("", ""), "load": (b"", 0), "architecture": (0,)}.items():
        with pytest.raises(NotImplementedError, match=rf"device 'empty'.*{method}\(\)"):
            getattr(empty, method)(*args)


def test_a_dialect_without_addresses_passes_handles_and_offsets(driver: Counting) -> None:
    dialect = tangrad_plain_c.PlainC(
        "handles",
        function="static inline",
        types=driver.dialect.types,
        header=driver.dialect.header,
        lanes=1,
        max_blocks=1,
        addresses=False,
    )
    kernel = Kernel("k", (("float32", "y"),), (("int64", "n", 0),), "    y[g.n] = 1;")
    text = super(tangrad_plain_c.PlainC, dialect).kernel(kernel)
    assert "uint8_t *y_memory, const k_numbers g" in text
    assert "int64_t y_offset;" in text
    assert "float *y = ( float *)(y_memory + g.y_offset);" in text
    driver.dialect = dialect
    given = []
    driver.launch = lambda *args: given.append(args)  # type: ignore[method-assign]
    driver.module_of = lambda source, index: {"k": "k"}  # type: ignore[method-assign]
    driver.function = lambda module, name: name  # type: ignore[method-assign]
    Unit(driver, [kernel]).launch("k", 1, [(0x77, 16)], [5])
    assert given == [("k", 1, [0x77], (5).to_bytes(8, "little") + (16).to_bytes(8, "little"), 0)]


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda x, i: x.index_select(0, i), IndexError, "index_select(): index 9 is out of bounds"),
        (lambda x, i: x.gather(0, i), RuntimeError, "gather(): index 9 is out of bounds"),
        (lambda x, i: x.scatter_add(0, i, x[:1]), RuntimeError, "index 9 is out of bounds"),
        (lambda x, i: x[i], IndexError, "index 9 is out of bounds for dimension 0 with size 3"),
        (lambda x, i: x[i], IndexError, "of a tensor of shape (3,)"),
        (
            lambda x, i: tangrad.nn.functional.embedding(i, x.reshape(3, 1)),
            IndexError,
            "index 9 is out of bounds for dimension 0 with size 3, of a tensor of shape (3, 1)",
        ),
    ],
)
def test_indices_out_of_bounds_are_told_with_index_bound_and_shape(
    device: str, wrong, error: type[Exception], words: str
) -> None:
    x = tangrad.arange(3.0, device=device)
    with pytest.raises(error, match=re.escape(words)):
        wrong(x, tangrad.tensor([9], device=device)).tolist()
    assert x.sum().item() == 3


def test_the_driver_is_the_one_that_the_document_shows() -> None:
    source = Path(tangrad_plain_c.__file__).read_text("utf-8")
    assert f"```python\n# src/tangrad_plain_c.py\n{source}```" in DOCUMENT.read_text("utf-8")


def test_the_families_are_loaded_when_they_are_needed() -> None:
    assert os.path.isdir(os.path.dirname(cache.__file__))
    from tangrad.plugin.compiled import families

    known = {op: module for module, ops in families._FAMILIES.items() for op in ops.split()}
    assert known == families._BY_NAME
    for op in known:
        assert tangrad.plugin.has_op(op), op
    assert isinstance(get_driver("plain_c"), CompilingDriver)
