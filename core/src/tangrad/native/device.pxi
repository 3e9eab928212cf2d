# Devices at run time, slots, layouts and memory formats.

cdef class DeviceType:
    """A registered kind of device: its name, its driver once opened, its slots by layout."""
    cdef readonly str name
    cdef readonly int index
    cdef public object driver
    cdef public bint host          # its handles are host pointers
    cdef public bint meta          # it has no memory at all
    cdef public bint asks_stream   # threads have chosen streams: memory is of the current one
    cdef int strided_slot
    cdef dict runtimes

    def __init__(self):
        raise TypeError("device types are registered: see tangrad.plugin")


cdef class DeviceRuntime:
    """One device (type and index) with its allocator."""
    cdef readonly device device
    cdef readonly DeviceType type
    cdef readonly CachingAllocator allocator
    cdef readonly int index
    cdef int slot
    cdef uint64_t home_stream            # where threads work that chose no stream
    cdef object stream                   # the random numbers of calls that name no generator, once asked for


cdef class device:
    """device(type, index=None)\n--\n\nName a device: `device("cpu")`, `device("loopback:1")`, `device("cpu", 0)`.

    Attributes:
        type: name of the device type.
        index: ordinal, or None for the current device of that type.

    A device that programs ask for everywhere may be named where it is not installed; to use it is
    an error.

    Raises:
        RuntimeError: the string is malformed or names no known device type.
    """
    cdef readonly str type
    cdef readonly object index

    def __init__(self, type, index=None):
        if isinstance(type, device):
            self.type = (<device>type).type
            self.index = (<device>type).index
            return
        if isinstance(type, int) and not isinstance(type, bool):
            index = type
            type = _default_accelerator()
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, not {_type_name(type)}")
        name, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError("type (string) must not include an index because index was passed explicitly: "
                                   f"{type}")
            if not number.isdigit() or (len(number) > 1 and number[0] == "0"):
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        if not name:
            raise RuntimeError("Device string must not be empty" if not type else f"Invalid device string: '{type}'")
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must be non-negative, got {index}")
        if name not in _device_types:
            _check_device_name(name)
        self.type, self.index = name, index

    def __repr__(self):
        if self.index is None:
            return f"device(type='{self.type}')"
        return f"device(type='{self.type}', index={self.index})"

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other):
        if not isinstance(other, device):
            return NotImplemented
        return self.type == (<device>other).type and self.index == (<device>other).index

    def __hash__(self):
        return hash((self.type, self.index))

    def __reduce__(self):
        return device, (self.type, self.index)

    def __enter__(self):
        _push_default_device(self)
        return self

    def __exit__(self, *exc):
        _pop_default_device()


cdef dict _device_types = {}
cdef list _slots = []                   # (device type name, layout name) by slot
_default_devices = _thread_local()      # the thread's stack; empty: the first registered host type
cdef int default_devices_anywhere = 0   # on the stacks of all threads: 0 costs one load
cdef object _driver_source = None       # Python callable: name -> driver, may raise
cdef object _named_anyway = None        # Python callable: name -> whether it may be named though it is not there


def set_driver_source(find, named_anyway):
    """Install the functions that open a device driver by name, and tell which may be named without one."""
    global _driver_source, _named_anyway
    _driver_source, _named_anyway = find, named_anyway


cdef int _check_device_name(str name) except -1:
    try:
        _find_device_type(name)
    except RuntimeError:
        if not _named_anyway(name):
            raise
    return 0


cdef DeviceType _find_device_type(str name):
    found = _device_types.get(name)
    if found is not None:
        return <DeviceType>found
    if _driver_source is None:
        raise RuntimeError(f"no device type named '{name}' is registered")
    _driver_source(name)
    found = _device_types.get(name)
    if found is None:
        raise RuntimeError(f"the driver of device '{name}' did not register itself")
    return <DeviceType>found


def register_device_type(str name, driver=None, *, bint host=False, bint meta=False):
    """Register a device type and its slot for strided tensors; returns it (idempotent by name)."""
    cdef DeviceType new
    if name in _device_types:
        new = _device_types[name]
        if driver is not None:
            new.driver = driver
        return new
    new = DeviceType.__new__(DeviceType)
    new.name, new.driver, new.host, new.meta, new.runtimes = name, driver, host, meta, {}
    _device_types[name] = new
    new.strided_slot = register_slot(name, "strided")
    return new


def ask_for_streams(str name):
    """From now on, new memory of a type of device is of the stream that is current."""
    (<DeviceType>_find_device_type(name)).asks_stream = True


def registered_devices():
    """Return the names of the device types registered so far."""
    return list(_device_types)


cpdef int register_slot(str device_name, str layout_name) except -1:
    """Return the slot of (device type, layout), registering it on first use."""
    key = (device_name, layout_name)
    if key in _slots:
        return _slots.index(key)
    layout_named(layout_name)
    _slots.append(key)
    return len(_slots) - 1


def slot_name(int slot):
    """Return (device type name, layout name) of a slot."""
    return _slots[slot]


cdef class layout:
    """layout()\n--\n\nA registered memory layout, e.g. `tangrad.strided`.

    Attributes:
        name: without "tangrad.".
        definition: what a plugin says of it, or None.
    """
    cdef readonly str name
    cdef readonly object definition

    def __init__(self):
        raise TypeError("layouts are registered: see tangrad.plugin.register_layout")

    def __repr__(self):
        return shown_as + self.name

    def __reduce__(self):
        return layout_named, (self.name,)


cdef dict _layouts = {}
cdef object _layout_source = None       # Python callable: asks the plugins to register theirs
cdef object _public_name = None         # Python callable: whether `tangrad.<name>` is something of the core's


def set_layout_source(ask, is_public):
    """Install the functions that let plugins register their layouts, and that tell which names are taken."""
    global _layout_source, _public_name
    _layout_source, _public_name = ask, is_public


cpdef layout layout_named(str name):
    """Return the layout of that name, asking the plugins for it.

    Raises:
        ValueError: nobody registers it.
    """
    found = _layouts.get(name)
    if found is None and _layout_source is not None:
        _layout_source()
        found = _layouts.get(name)
    if found is None:
        raise ValueError(f"no layout is named '{name}'; registered are {', '.join(sorted(_layouts))}. Install the "
                         "package that brings it, or register it with tangrad.plugin.register_layout")
    return <layout>found


def register_layout(str name, definition=None):
    """Register a layout; the same name with the same definition again is the same layout.

    Args:
        name: an identifier; `tangrad.<name>` is the layout.
        definition: an instance of `tangrad.plugin.Layout`, or None for a layout that nothing but
            classes with `__torch_dispatch__` uses.

    Returns:
        The layout.

    Raises:
        ValueError: the name is no identifier, or is that of something else.
    """
    cdef layout new
    new = <layout>_layouts.get(name)
    if new is None and _public_name is not None:
        from tangrad.tensor.declared import check_name
        check_name("register_layout", "a layout's", name)
    if new is None:
        new = layout.__new__(layout)
        new.name, new.definition = name, definition
        _layouts[name] = new
        return new
    if definition is None or new.definition is definition:
        return new
    if new.definition is not None or name == "strided":
        raise ValueError(f"register_layout: layout '{name}' is defined already, by {_origin(new.definition)}; "
                         f"{_origin(definition)} has to choose another name")
    new.definition = definition
    return new


cdef str _origin(object definition):
    return "the core" if definition is None else f"{type(definition).__module__}.{type(definition).__qualname__}"


class _NoLevel:
    """The level of a tensor of another layout: none, which never ends."""
    closed = False
    lenient = False


cdef class LayoutContents:
    """What a tensor of another layout holds in place of elements; aliases of the tensor share it.

    Attributes:
        layout: the layout.
        components: {name: strided tensor}.
        metadata: {name: value}.
    """
    cdef readonly layout layout
    cdef public dict components
    cdef public dict metadata

    @property
    def level(self):
        return _NoLevel


def is_public(str name):
    """Return whether `tangrad.<name>` is something already, of the core or a dtype or layout."""
    return name in _dtype_names or name in _layouts or _public_name(name)


def registered_layouts():
    """Return all registered layouts."""
    return list(_layouts.values())


_layouts["strided"] = layout.__new__(layout)
(<layout>_layouts["strided"]).name = "strided"
strided = _layouts["strided"]


cdef class memory_format:
    """memory_format(name)\n--\n\nAn order of strides: `contiguous_format`, `channels_last`, `channels_last_3d`,
    `preserve_format`."""
    cdef readonly str name

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return shown_as + self.name

    def __reduce__(self):
        return _memory_format_by_name, (self.name,)


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


def _memory_format_by_name(name):
    return {f.name: f for f in (contiguous_format, preserve_format, channels_last, channels_last_3d)}[name]


cdef list default_devices():
    """The devices that were set in this thread."""
    if not hasattr(_default_devices, "stack"):
        _default_devices.stack = []
    return _default_devices.stack


def _push_default_device(d):
    global default_devices_anywhere
    default_devices().append(d)
    default_devices_anywhere += 1


def _pop_default_device():
    global default_devices_anywhere
    default_devices().pop()
    default_devices_anywhere -= 1


def set_default_device(d):
    """Set the device on which factory functions of this thread allocate; None restores the initial one."""
    global default_devices_anywhere
    cdef list mine = default_devices()
    wanted = [] if d is None else [d if isinstance(d, device) else device(d)]
    default_devices_anywhere += len(wanted) - len(mine)
    mine[:] = wanted


def get_default_device():
    """Return the device on which factory functions of this thread allocate."""
    global initial_device_
    cdef list mine
    if default_devices_anywhere:
        mine = default_devices()
        if mine:
            return mine[len(mine) - 1]
    if initial_device_ is None:
        initial_device_ = device(_initial_device)
    return initial_device_


_initial_device = "cpu"
cdef device initial_device_ = None      # made on first use: that opens its driver


def _default_accelerator():
    for name, kind in _device_types.items():
        if not (<DeviceType>kind).host and not (<DeviceType>kind).meta:
            return name
    return _initial_device


cdef DeviceRuntime runtime_of(object where):
    """Return the run-time record of a device, a device string or None (the default)."""
    cdef DeviceType kind
    cdef device d
    if where is None:
        d = get_default_device()
    elif isinstance(where, device):
        d = where
    else:
        d = device(where)
    kind = _find_device_type(d.type)
    found = kind.runtimes.get(d.index)
    if found is not None:
        return <DeviceRuntime>found
    return _open_runtime(kind, d)


cdef DeviceRuntime _open_runtime(DeviceType kind, device d):
    cdef DeviceRuntime new
    index = d.index
    if index is None and not kind.host and not kind.meta:
        index = kind.driver.current_device() if hasattr(kind.driver, "current_device") else 0
        found = kind.runtimes.get(index)
        if found is not None:
            if kind.driver.device_count() == 1:
                kind.runtimes[None] = found
            return <DeviceRuntime>found
        d = device(d.type, index)
    if (kind.host or kind.meta) and index is not None:
        # one memory: "cpu:0" is "cpu", and its tensors say so, whatever the index, as PyTorch's do
        kind.runtimes[index] = new = runtime_of(device(kind.name))
        return new
    if kind.driver is not None and index is not None:
        count = kind.driver.device_count()
        if index >= count:
            raise RuntimeError(f"device '{d}' does not exist: {kind.name} has {count} device(s), "
                               f"indices 0 to {count - 1}")
    new = DeviceRuntime.__new__(DeviceRuntime)
    if kind.meta:
        new.allocator = None
    elif kind.host:
        new.allocator = CachingAllocator()
    else:
        new.allocator = CachingAllocator(_IndexedDriver(kind.driver, index))
        new.home_stream = kind.driver.default_stream(index)
    new.device, new.type, new.slot = d, kind, kind.strided_slot
    new.index = 0 if index is None else index
    kind.runtimes[d.index] = new
    return new


def allocators():
    """Return {number: device} of the allocators of devices that are open, as watchers of memory name them."""
    found = {}
    for kind in _device_types.values():
        for runtime in (<DeviceType>kind).runtimes.values():
            if (<DeviceRuntime>runtime).allocator is not None:
                found.setdefault((<DeviceRuntime>runtime).allocator.number, (<DeviceRuntime>runtime).device)
    return found


class _IndexedDriver:
    """The raw driver of one device index, as the allocator wants it."""

    def __init__(self, driver, index):
        def allocate(nbytes):
            handle = driver.allocate(nbytes, index)
            if isinstance(handle, int) and 0 <= handle < 2**64:
                return handle
            raise TypeError(f"device '{driver.name}': allocate() returned {handle!r}, but a handle is an integer of "
                            "64 unsigned bits")

        self.allocate = allocate
        self.release = lambda handle, nbytes: driver.release(handle, nbytes)
        for name in ("record_event", "query_event", "synchronize_event", "destroy_event"):
            if getattr(driver, name, None) is not None:
                setattr(self, name, getattr(driver, name))
