from tangrad import _C
class _D:
    def device_count(self): return 1
class _R(_D):
    @property
    def kernel_for(self):
        from tangrad.devices import reference
        return reference.kernel_for
def open_device(name):
    if name in ("cpu", "reference"):
        _C.register_device_type(name, _R(), host=True)
    elif name == "meta":
        _C.register_device_type(name, _D(), meta=True)
    else:
        raise RuntimeError("unknown device " + name)
