"""A file in the tar format of PyTorch before 0.1.10, which nothing writes any more."""

import io
import pickle
import struct
import tarfile
from collections import OrderedDict


def old_tar():
    """Return a file as PyTorch 0.1.9 wrote it: two tensors on one storage."""
    members = {"sys_info": pickle.dumps({"protocol_version": 1000, "little_endian": True}, 2)}
    key = Named("torch", "FloatStorage")
    storage = pickle.dumps(1, 2) + dumps((7, "cpu", key))
    storage += struct.pack("<q", 6) + struct.pack("<6f", *range(6)) + pickle.dumps([], 2)
    members["storages"] = storage
    tensors = pickle.dumps(2, 2)
    for number, size, stride, offset in ((1, (2, 3), (3, 1), 0), (2, (2,), (3,), 1)):
        tensors += dumps((number, 7, Named("torch", "FloatTensor")))
        tensors += struct.pack("<i4x", len(size))
        tensors += struct.pack(f"<{2 * len(size) + 1}q", *size, *stride, offset)
    members["tensors"] = tensors
    stream = io.BytesIO()
    pickler = ById(stream, 2)
    pickler.dump(OrderedDict(a=Ref(1), b=Ref(2)))
    members["pickle"] = stream.getvalue()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    made.seek(0)
    return made


class Named:
    def __init__(self, module, name):
        self.module, self.name = module, name


class Ref:
    def __init__(self, number):
        self.number = number


class ById(pickle._Pickler):
    def persistent_id(self, obj):
        return obj.number if isinstance(obj, Ref) else None

    def reducer_override(self, obj):
        return obj.name if isinstance(obj, Named) else NotImplemented

    def save_global(self, obj, name=None):
        if isinstance(obj, Named):
            self.write(b"c" + f"{obj.module}\n{obj.name}\n".encode())
        else:
            super().save_global(obj, name)


def dumps(obj):
    stream = io.BytesIO()
    ById(stream, 2).dump(obj)
    return stream.getvalue()
