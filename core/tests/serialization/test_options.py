"""What `save` and `load` are told: data left out, checksums, mapped files, registered locations."""

import mmap
import zipfile
from fractions import Fraction

import pytest

import tangrad
from tangrad.serialization import placement

torch = pytest.importorskip("torch", reason="torch is the oracle")
BOTH = pytest.mark.parametrize("writer", [tangrad, torch], ids=["ours", "PyTorch's"])


def content(t):
    x = t.arange(12.0).reshape(3, 4)
    return {"a": x, "view": x[1], "b": t.ones(2, dtype=t.int64), "none": t.empty(0)}


@pytest.fixture
def packages():
    """Forget what a test registers."""
    kept = list(placement._packages), list(torch.serialization._package_registry)
    yield
    placement._packages[:], torch.serialization._package_registry[:] = kept


@BOTH
def test_data_left_out_by_a_save_is_zeros_for_both(tmp_path, writer):
    path = tmp_path / "x.pt"
    with writer.serialization.skip_data():
        writer.save(content(writer), path)
    for reader in (tangrad, torch):
        found = reader.load(path)
        assert found["a"].tolist() == [[0.0] * 4] * 3
        assert found["view"].shape == (4,)
        assert found["b"].dtype is reader.int64
    members = {m.filename: (m.file_size, m.CRC) for m in zipfile.ZipFile(path).infolist()}
    assert members["x/data/0"] == (48, 0)


def test_the_place_of_left_out_data_can_be_filled(tmp_path):
    whole, hollow = tmp_path / "whole.pt", tmp_path / "hollow.pt"
    tangrad.save(content(tangrad), whole)
    with tangrad.serialization.skip_data():
        tangrad.save(content(tangrad), hollow)
    member = zipfile.ZipFile(hollow).getinfo("hollow/data/0")
    data = bytearray(hollow.read_bytes())
    named, extra = data[member.header_offset + 26], data[member.header_offset + 28]
    start = member.header_offset + 30 + named + extra
    assert start % 64 == 0
    data[start : start + 48] = zipfile.ZipFile(whole).read("whole/data/0")
    hollow.write_bytes(data)
    assert tangrad.load(hollow)["a"].tolist() == content(tangrad)["a"].tolist()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_load_may_leave_data_out(tmp_path, zipped):
    path = tmp_path / "x.pt"
    tangrad.save(content(tangrad), path, _use_new_zipfile_serialization=zipped)
    data = bytearray(path.read_bytes())
    at = data.index(content(tangrad)["a"].numpy().tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with tangrad.serialization.skip_data():
        found = tangrad.load(path)
    assert found["a"].shape == (3, 4)
    assert found["view"].storage_offset() == 4
    assert found["a"].untyped_storage().data_ptr() == found["view"].untyped_storage().data_ptr()


def test_data_is_not_left_out_of_the_old_format(tmp_path):
    with tangrad.serialization.skip_data(), pytest.raises(RuntimeError, match="skip_data"):
        tangrad.save(content(tangrad), tmp_path / "x", _use_new_zipfile_serialization=False)


@BOTH
def test_files_without_checksums_are_read_by_both(tmp_path, writer):
    writer.serialization.set_crc32_options(False)
    try:
        assert not writer.serialization.get_crc32_options()
        writer.save(content(writer), tmp_path / "x.pt")
    finally:
        writer.serialization.set_crc32_options(True)
    assert all(m.CRC == 0 for m in zipfile.ZipFile(tmp_path / "x.pt").infolist())
    for reader in (tangrad, torch):
        assert reader.load(tmp_path / "x.pt")["b"].tolist() == [1, 1]


@pytest.mark.parametrize("shared", [True, False])
def test_writes_to_mapped_tensors_reach_the_file_where_they_are_to(tmp_path, shared):
    path = tmp_path / "x.pt"
    tangrad.save(content(tangrad), path)
    flags = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
    with tangrad.serialization.set_default_mmap_options(flags):
        assert tangrad.serialization.get_default_mmap_options() == flags
        found = tangrad.load(path, mmap=True)
    assert tangrad.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    found["a"].fill_(7)
    assert found["view"].tolist() == [7] * 4
    assert (torch.load(path)["a"] == 7).all() == shared


def test_other_ways_to_map_are_refused(agree):
    agree(lambda t: t.serialization.set_default_mmap_options(99))


@pytest.mark.parametrize("priority", [1, 15])
def test_registered_functions_tell_and_find_locations(agree, packages, tmp_path, priority):
    def program(t):
        seen = []

        def deserialize(storage, location):
            seen.append(location)
            return storage if location == "somewhere" else None

        t.serialization.register_package(priority, lambda storage: "somewhere", deserialize)
        path = tmp_path / f"{t.__name__}.pt"
        t.save(content(t), path)
        found = t.load(path)
        told = t.serialization.location_tag(t.ones(1).untyped_storage())
        return seen, told, found["a"], found["view"]

    agree(program)


def test_storages_of_registered_locations_move_where_map_location_says(packages, tmp_path):
    tangrad.serialization.register_package(5, lambda storage: "far", lambda storage, where: None)
    tangrad.save(content(tangrad), tmp_path / "x.pt")
    assert tangrad.load(tmp_path / "x.pt", map_location={"far": "meta"})["a"].is_meta
    with pytest.raises(tangrad.SerializationError, match="far"):
        tangrad.load(tmp_path / "x.pt")


def test_storages_are_brought_to_a_location_by_hand():
    storage = tangrad.ones(2).untyped_storage()
    assert tangrad.serialization.default_restore_location(storage, "cpu") is storage
    assert str(tangrad.serialization.default_restore_location(storage, "meta").device) == "meta"


def test_the_environment_may_trust_all_files(tmp_path, monkeypatch):
    file = tmp_path / "fraction.pt"
    tangrad.save(Fraction(1, 3), file)
    variable = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    for value in ("", "0", "no"):
        monkeypatch.setenv(variable, value)
        with pytest.raises(tangrad.serialization.UnsafeContentError):
            tangrad.load(file)
    monkeypatch.setenv(variable, "1")
    assert tangrad.load(file) == Fraction(1, 3)
    with pytest.raises(tangrad.serialization.UnsafeContentError):
        tangrad.load(file, weights_only=True)
