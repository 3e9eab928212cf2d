"""Files that PyTorch wrote are read, and PyTorch reads ours."""

import io
import struct

import pytest
from old_tar import old_tar

import tangrad
from tangrad import nn
from tangrad.serialization import SerializationError

torch = pytest.importorskip("torch", reason="torch is the oracle")

DTYPES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128"
).split()


BEFORE_ZIP = {"_use_new_zipfile_serialization": False}
FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])


def checkpoint(t):
    """Return what programs put into files."""
    base = t.arange(12, dtype=t.float32).reshape(3, 4)
    weight = t.nn.Parameter(base.clone())
    model = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2))
    return {
        "tensors": {name: t.arange(5).to(getattr(t, name)) for name in DTYPES},
        "views": [base[1:], base.t(), base[:, ::2], base[0, 0], base.expand(2, 3, 4)],
        "empty": t.empty(0, 3),
        "parameter": weight,
        "frozen": t.nn.Parameter(base.clone(), requires_grad=False),
        "grad": t.ones(2, requires_grad=True),
        "meta": t.empty(2, 3, device="meta"),
        "model": model.state_dict(),
        "optimizer": t.optim.AdamW(model.parameters(), lr=0.1).state_dict(),
        "dtype": t.float16,
        "device": t.device("cpu"),
        "size": t.Size([1, 2]),
        "values": [1, -5, 2**40, -(2**70), 2.5, "text ä", None, True, (1, (2,)), {1, 2}, b"ab", 3j],
        "nothing": [[], {}, (), set(), ""],
    }


def as_plain(item):
    """Return what a file gave, without the framework's types."""
    name = type(item).__name__
    if name in ("Tensor", "Parameter"):
        shape = list(item.shape)
        values = None if item.device.type == "meta" else item.detach().tolist()
        return [name, str(item.dtype).split(".")[1], shape, item.requires_grad, values]
    if isinstance(item, dict):
        return {key: as_plain(value) for key, value in item.items()}
    if name == "Size":
        return list(item)
    if isinstance(item, (list, tuple)):
        return [as_plain(value) for value in item]
    return str(item).replace("torch", "tangrad") if name in ("dtype", "device") else item


def saved(t, obj, **options):
    stream = io.BytesIO()
    t.save(obj, stream, **options)
    stream.seek(0)
    return stream


@FORMATS
def test_files_of_pytorch_are_read(zipped):
    theirs = checkpoint(torch)
    loaded = tangrad.load(saved(torch, theirs, _use_new_zipfile_serialization=zipped))
    assert as_plain(loaded) == as_plain(theirs)
    assert loaded["model"]._metadata == theirs["model"]._metadata
    storages = {id(view.untyped_storage()) for view in loaded["views"]}
    assert len(storages) == 1, "views of one tensor share a storage in the file"
    assert [v.stride() for v in loaded["views"]] == [v.stride() for v in theirs["views"]]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pytorch_reads_our_files(protocol):
    ours = checkpoint(tangrad)
    loaded = torch.load(saved(tangrad, ours, pickle_protocol=protocol), weights_only=protocol == 2)
    assert as_plain(loaded) == as_plain(ours)
    assert loaded["model"]._metadata == ours["model"]._metadata
    assert len({view.untyped_storage().data_ptr() for view in loaded["views"]}) == 1


def test_the_format_before_1_6_is_written():
    ours = checkpoint(tangrad)
    assert as_plain(tangrad.load(saved(tangrad, ours, **BEFORE_ZIP))) == as_plain(ours)
    loaded = torch.load(saved(tangrad, ours, **BEFORE_ZIP))
    assert as_plain(loaded) == as_plain(ours)
    assert len({view.untyped_storage().data_ptr() for view in loaded["views"]}) == 1


def with_storages(t):
    """Return bare storages, alone and beside tensors that lie on them."""
    x, y = t.arange(4.0), t.arange(3)
    return {"typed": x.storage(), "tensor": x[1:], "again": x.storage(), "longs": y.storage()}


@FORMATS
@pytest.mark.parametrize(("to", "of"), [(tangrad, torch), (torch, tangrad), (tangrad, tangrad)])
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_bare_storages_go_both_ways(to, of, zipped):
    stream = saved(of, with_storages(of), _use_new_zipfile_serialization=zipped)
    loaded = to.load(stream)
    assert [type(loaded[name]) for name in ("typed", "longs")] == [to.TypedStorage] * 2
    assert (loaded["typed"].dtype, loaded["longs"].dtype) == (to.float32, to.int64)
    assert loaded["typed"].tolist() == [0, 1, 2, 3]
    assert loaded["longs"].tolist() == [0, 1, 2]
    loaded["typed"][2] = 7.0
    assert loaded["tensor"].tolist() == [1, 7, 3]
    assert loaded["again"].data_ptr() == loaded["typed"].data_ptr()


# PyTorch says so once in a process, in whichever test is the first.
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
@pytest.mark.parametrize(
    ("to", "of", "zipped"),
    [
        (tangrad, torch, True),  # PyTorch cannot read its own file of the format before.
        *((to, tangrad, zipped) for to in (torch, tangrad) for zipped in (True, False)),
    ],
)
def test_a_storage_of_bytes_is_loaded_as_pytorch_does(to, of, zipped):
    storage = of.tensor([1, 2], dtype=of.int16).untyped_storage()
    stream = saved(of, [storage, storage], _use_new_zipfile_serialization=zipped)
    first, second = to.load(stream)
    assert type(first) is to.TypedStorage
    assert first.dtype is to.uint8
    assert first.tolist() == [1, 0, 2, 0]
    assert second is first


@FORMATS
@pytest.mark.parametrize("framework", [torch, tangrad])
@pytest.mark.parametrize(
    "other", [lambda t, x: x.view(t.int32), lambda t, x: x.untyped_storage()], ids=["int", "bytes"]
)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_storage_of_two_dtypes_is_refused(framework, other, zipped):
    x = framework.ones(2)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        saved(framework, [x, other(framework, x)], _use_new_zipfile_serialization=zipped)


def test_a_storage_without_a_name_in_files_is_refused():
    with pytest.raises(SerializationError, match="storage of uint16"):
        saved(tangrad, tangrad.ones(2).to(tangrad.uint16).storage())


def test_plain_types_of_a_file_get_no_storage():
    stream = saved(tangrad, {"list": Listed(tangrad.ones(1000).storage())})
    with pytest.raises(SerializationError, match="calls"):
        tangrad.load(stream)


class Listed:
    """Is rebuilt as the list of what it holds."""

    def __init__(self, held):
        self.held = held

    def __reduce__(self):
        return list, (self.held,)


def test_the_format_before_1_6_takes_an_empty_storage_of_two_dtypes():
    x = tangrad.ones(0)
    a, b = tangrad.load(saved(tangrad, [x, x.view(tangrad.int32)], **BEFORE_ZIP))
    assert (a.dtype, b.dtype, b.shape) == (tangrad.float32, tangrad.int32, (0,))


def test_our_files_are_ours(tmp_path):
    ours = checkpoint(tangrad)
    tangrad.save(ours, tmp_path / "a.pt")
    for mapped in (False, True):
        loaded = tangrad.load(tmp_path / "a.pt", mmap=mapped)
        assert as_plain(loaded) == as_plain(ours)
        loaded["views"][0][0, 0] = -1.0
        assert loaded["views"][1][0, 1] == -1.0


def test_mapped_tensors_do_not_write_to_the_file(tmp_path):
    tangrad.save(tangrad.zeros(1000), tmp_path / "a.pt")
    tangrad.load(tmp_path / "a.pt", mmap=True).fill_(1.0)
    assert not tangrad.load(tmp_path / "a.pt").any()


def test_whole_modules_go_both_ways():
    # In training, two samples that are nearly equal would make much of a rounding error.
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.ReLU()).eval()
    x = tangrad.arange(6.0).reshape(2, 3)
    theirs = torch.load(saved(tangrad, model), weights_only=False)
    result = theirs(torch.arange(6.0).reshape(2, 3)).detach().numpy()
    assert result == pytest.approx(model(x).detach().numpy(), abs=1e-6)
    back = tangrad.load(saved(torch, theirs), weights_only=False)
    assert as_plain(back.state_dict()) == as_plain(model.state_dict())
    with pytest.raises(SerializationError, match="weights_only=False"):
        tangrad.load(saved(torch, theirs))


class Mine(nn.Module):
    """A module that a program defines."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)


def test_modules_of_a_program_are_loaded_with_permission():
    model = Mine()
    loaded = tangrad.load(saved(tangrad, model), weights_only=False)
    assert type(loaded) is Mine
    assert as_plain(loaded.state_dict()) == as_plain(model.state_dict())


def test_allowed_names_are_loaded():
    stream = saved(tangrad, {"point": Point(1, 2)})
    with pytest.raises(SerializationError, match="Point"):
        tangrad.load(stream)
    stream.seek(0)
    with tangrad.serialization.safe_globals([Point]):
        assert tangrad.load(stream)["point"].x == 1
        assert tangrad.serialization.get_safe_globals() == [Point]
    assert tangrad.serialization.get_safe_globals() == []
    stream.seek(0)
    names = tangrad.serialization.get_unsafe_globals_in_checkpoint(stream)
    assert [name.rpartition(".")[2] for name in names] == ["Point"]


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y


LOCATIONS = {
    "device": lambda t: t.device("meta"),
    "text": lambda t: "meta",
    "dictionary": lambda t: {"cpu": "meta"},
    "function": lambda t: lambda storage, location: None,
}


@pytest.mark.parametrize("kind", LOCATIONS)
def test_storages_go_where_they_are_told(kind):
    stream = saved(tangrad, tangrad.ones(3))
    loaded = tangrad.load(stream, map_location=LOCATIONS[kind](tangrad))
    assert loaded.device.type == ("cpu" if kind == "function" else "meta")


def test_a_device_that_is_not_here_is_named():
    class Elsewhere(tangrad.serialization.TensorBuilder):
        pass

    stream = saved(torch, torch.ones(3))
    content = stream.getvalue()
    # The same length, so that only the checksum has to be made anew.
    archive = tangrad.serialization.archive
    reader = archive.ArchiveReader(tangrad.serialization.Source(io.BytesIO(content)))
    data = reader.read("data.pkl").replace(b"\x03\x00\x00\x00cpu", b"\x03\x00\x00\x00xyz")
    made = io.BytesIO()
    writer = archive.ArchiveWriter(made.write, "archive")
    for name in reader.members:
        writer.add(name, data if name == "data.pkl" else reader.read(name))
    writer.close()
    made.seek(0)
    with pytest.raises(SerializationError, match="map_location"):
        tangrad.load(made)
    made.seek(0)
    assert tangrad.load(made, map_location="cpu").tolist() == [1, 1, 1]


def test_big_endian_files_are_turned_round():
    archive = tangrad.serialization.archive
    stream = saved(torch, torch.tensor([1.5, -2.0]))
    reader = archive.ArchiveReader(tangrad.serialization.Source(stream))
    made = io.BytesIO()
    writer = archive.ArchiveWriter(made.write, "archive")
    for name in reader.members:
        content = reader.read(name)
        content = b"big" if name == "byteorder" else content
        content = struct.pack(">2f", 1.5, -2.0) if name == "data/0" else content
        writer.add(name, content)
    writer.close()
    made.seek(0)
    assert tangrad.load(made).tolist() == [1.5, -2.0]


@pytest.mark.parametrize("framework", [torch, tangrad])
@pytest.mark.parametrize(("name", "swaps"), [(None, False), ("LITTLE", False), ("BIG", True)])
def test_the_order_of_bytes_of_files_that_do_not_tell_it_can_be_set(framework, name, swaps):
    stream = saved(tangrad, tangrad.tensor([1, 256]), _disable_byteorder_record=True)
    files = framework.serialization
    files.set_default_load_endianness(name and files.LoadEndianness[name])
    try:
        assert files.get_default_load_endianness() is (name and files.LoadEndianness[name])
        expected = [1 << 56, 1 << 48] if swaps else [1, 256]
        assert framework.load(stream).tolist() == expected
    finally:
        files.set_default_load_endianness(None)
    with pytest.raises(TypeError, match="Invalid argument type"):
        files.set_default_load_endianness("big")


def test_the_oldest_files_are_read(tmp_path):
    expected = {"a": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], "b": [1.0, 4.0]}
    (tmp_path / "old.pt").write_bytes(old_tar().getvalue())
    theirs = torch.load(tmp_path / "old.pt", weights_only=False)
    assert {name: x.tolist() for name, x in theirs.items()} == expected
    ours = tangrad.load(old_tar())
    assert {name: x.tolist() for name, x in ours.items()} == expected
    assert ours["a"].untyped_storage() is ours["b"].untyped_storage()


def test_safetensors_go_both_ways(tmp_path):
    files = tangrad.serialization.safetensors
    tensors = {
        name: tangrad.arange(6).to(getattr(tangrad, name)).reshape(2, 3)
        for name in DTYPES
        if name != "complex128"
    }
    tensors |= {"scalar": tangrad.tensor(2.5), "empty": tangrad.empty(0, 4)}
    files.save_file(tensors, tmp_path / "a.safetensors", {"format": "pt"})
    loaded = files.load_file(tmp_path / "a.safetensors")
    assert {k: as_plain(v) for k, v in loaded.items()} == {
        k: as_plain(v) for k, v in tensors.items()
    }
    assert files.load(files.save(tensors)).keys() == tensors.keys()
    # The layout, written down by hand from the format's description.
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"a":"b"}}'
    content = struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.0, 2.0)
    assert files.load(content)["w"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("said", "name"), [("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2")]
)
def test_safetensors_hold_floats_of_eight_bits(said, name):
    files = tangrad.serialization.safetensors
    theirs = torch.tensor([0.5, -3.0, 0.1]).to(getattr(torch, name))
    header = b'{"w":{"dtype":"%s","shape":[3],"data_offsets":[0,3]}}' % said.encode()
    held = theirs.view(torch.uint8).numpy().tobytes()
    found = files.load(struct.pack("<Q", len(header)) + header + held)["w"]
    assert found.dtype is getattr(tangrad, name)
    assert found.float().tolist() == theirs.float().tolist()
    written = files.save({"w": found})
    assert said.encode() in written
    assert written.endswith(held)


@pytest.mark.parametrize(
    "header",
    [
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}',
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}',
        b'{"w":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}',
        b'{"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}',
        b'{"w":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,8]}}',
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{}}',
        b'{"w":1}',
        b"[]",
        b"{",
        b"[" * 100_000,
    ],
)
def test_wrong_safetensors_are_refused(header):
    content = struct.pack("<Q", len(header)) + header + bytes(8)
    with pytest.raises(SerializationError):
        tangrad.serialization.safetensors.load(content)


def test_shared_memory_is_refused_by_safetensors():
    x = tangrad.ones(4)
    with pytest.raises(SerializationError, match="share memory"):
        tangrad.serialization.safetensors.save({"a": x, "b": x[:2]})
