"""Generators, one default per device.

A generator is the (seed, offset) of a Philox stream, or holds an engine of a package where that was
chosen: `set_engine`, or `TANGRAD_RNG` in the environment. The default generators start from
unforeseeable seeds, or from `TANGRAD_SEED`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from tangrad import _C

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_default_generator",
    "get_engine",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_engine",
    "set_rng_state",
    "thread_safe_generator",
]

_STATE_BYTES = 16
# That of a new `torch.Generator`.
_FIRST_SEED = 67280421310721
_PHILOX = "philox"
# Each engine is a class of a seed; its `name` is that of its entry point.
_GROUP = "tangrad.random_engines"
_engine = _PHILOX


def _engine_class(name: str, where: str) -> Any:
    """Return the class of an engine, None for Philox, which ops themselves compute.

    Raises:
        ValueError: no package that is installed has it.
    """
    if name == _PHILOX:
        return None
    from tangrad.discovery import discovery

    try:
        return discovery.load_by_name(_GROUP, name)
    except LookupError:
        known = ", ".join([_PHILOX, *discovery.names(_GROUP)])
        raise ValueError(
            f"{where}: unknown engine {name!r}; choose one of {known}, or install a package that "
            "has it"
        ) from None


def _engine_of_state(size: int) -> str:
    """Return the name of the engine whose states have so many bytes.

    Raises:
        RuntimeError: there is none.
    """
    if size == _STATE_BYTES:
        return _PHILOX
    from tangrad.discovery import discovery

    for name in discovery.names(_GROUP):
        if discovery.load_by_name(_GROUP, name).state_bytes == size:
            return str(name)
    raise RuntimeError(
        f"RNG state is wrong size: no random engine that is installed has states of {size} bytes"
    )


def _as_device(device: Any) -> Any:
    from tangrad import device as device_type

    named = device_type(device)
    if named.index is None:
        return named
    # As tensors there say it: where an index means nothing, they have none.
    return _C.empty((0,), _C.dtype_by_name("uint8"), named).device


def _as_tensor(state: bytes) -> Any:
    from tangrad.tensor.construct import tensor
    from tangrad.tensor.exchange import dtype_named

    return tensor(list(state), dtype=dtype_named("uint8"), device="cpu")


def _as_bytes(state: Any, size: int) -> bytes:
    if not hasattr(state, "dtype") or str(state.dtype).rpartition(".")[2] != "uint8":
        raise TypeError("expected a uint8 tensor as generator state, as get_state() returns it")
    if state.numel() != size:
        raise RuntimeError(
            f"RNG state is wrong size: expected {size} bytes, got {state.numel()}; a state is of "
            "the engine that it was made by (see random.set_engine)"
        )
    return bytes(state.tolist())


def _as_seed(seed: Any) -> int:
    value = int(seed)
    if not -(2**63) <= value < 2**64:
        raise RuntimeError(f"manual_seed: the seed must fit in 64 bits, got {value}")
    return value % 2**64


def _unforeseeable() -> int:
    return int.from_bytes(os.urandom(8), "little")


def _seed_of_environment() -> int | None:
    """Return the seed that `TANGRAD_SEED` asks for, None if it asks for none."""
    text = os.environ.get("TANGRAD_SEED", "")
    try:
        return _as_seed(text) if text else None
    except (ValueError, RuntimeError):
        raise ValueError(
            f"TANGRAD_SEED: expected an integer of 64 bits, got {text!r}; unset it for a seed that "
            "differs from run to run"
        ) from None


class Generator(_C.Stream):
    """Hold the state of a random number stream.

    Args:
        device: the device the stream is for. Ops on devices of another type refuse it, as
            PyTorch's do, although a stream is the same everywhere.

    Raises:
        RuntimeError: no device has this name.
    """

    sequential: Any
    device_type: str

    def __init__(self, device: Any = "cpu") -> None:
        # The default generators are made while the compiled core is: no device exists yet.
        self._device = device if device == "cpu" else _as_device(device)
        self.device_type = getattr(self._device, "type", "cpu")
        self._lock = Lock()
        self.place(_FIRST_SEED, 0)
        self._use(_engine)

    @property
    def device(self) -> Any:
        """The device the stream is for."""
        self._device = _as_device(self._device)
        return self._device

    def _use(self, engine: str) -> None:
        """Start the stream of the seed anew by an engine."""
        seed = self.initial_seed()
        made = _engine_class(engine, "Generator")
        self.sequential = None if made is None else made(seed)
        self.place(seed, 0)

    @property
    def engine(self) -> str:
        """The engine's name, such as "philox"."""
        return _PHILOX if self.sequential is None else str(self.sequential.name)

    def advance(self, counters: int) -> tuple[int, int]:
        """Reserve counters of the stream.

        Args:
            counters: how many.

        Returns:
            (seed, offset): the reserved counters start at offset. No two calls, in whatever
            threads, are given the same.

        Raises:
            NotImplementedError: the engine is sequential: it has no counters.
        """
        self._require_counters("advance")
        reserved: tuple[int, int] = self.reserve(counters % 2**64)
        return reserved

    def _require_counters(self, what: str) -> None:
        if self.sequential is not None:
            raise NotImplementedError(
                f"{what}: an {self.engine} generator has no counters; "
                "use random.set_engine('philox')"
            )

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of a seed, a 64-bit integer, and return the generator.

        Raises:
            RuntimeError: the seed does not fit in 64 bits.
        """
        self._set(_as_seed(seed), 0)
        return self

    def seed(self) -> int:
        """Start a stream of an unforeseeable seed and return that."""
        value = _unforeseeable()
        self._set(value, 0)
        return value

    def initial_seed(self) -> int:
        """Return the seed of the stream."""
        seed: int = self.standing()[0]
        return seed

    def get_offset(self) -> int:
        """Return how many counters of the stream are used up.

        Raises:
            NotImplementedError: the engine is sequential: it has no counters.
        """
        self._require_counters("get_offset")
        offset: int = self.standing()[1]
        return offset

    def set_offset(self, offset: int) -> None:
        """Continue the stream at a counter.

        Raises:
            RuntimeError: the offset is negative or does not fit in 64 bits.
            NotImplementedError: the engine is sequential: it has no counters.
        """
        self._require_counters("set_offset")
        if not 0 <= offset < 2**64:
            raise RuntimeError(f"set_offset: expected 0 <= offset < 2**64, got {offset}")
        self._set(self.initial_seed(), offset)

    def get_state(self) -> Any:
        """Return the state, a uint8 tensor.

        It has 16 bytes, seed and offset in little endian; of another engine, what that says.
        """
        return _as_tensor(self._state())

    def set_state(self, state: Any) -> Generator:
        """Continue from a state that `get_state` returned; return the generator.

        Raises:
            TypeError: the state is not a uint8 tensor.
            RuntimeError: it is of another size.
        """
        self._set_bytes(_as_bytes(state, len(self._state())))
        return self

    def clone_state(self) -> Generator:
        """Return a new generator at the same place of the same stream."""
        return _rebuild_generator(self._device, self._state())

    def _state(self) -> bytes:
        with self._lock:
            if self.sequential is not None:
                found: bytes = self.sequential.state()
                return found
            return b"".join(part.to_bytes(8, "little") for part in self.standing())

    def _set_bytes(self, state: bytes) -> None:
        if len(state) != len(self._state()):
            self._use(_engine_of_state(len(state)))
        if self.sequential is not None:
            with self._lock:
                self.sequential.set_state(state)
                self.place(self.sequential.initial_seed, 0)
            return
        self._set(int.from_bytes(state[:8], "little"), int.from_bytes(state[8:], "little"))

    def _set(self, seed: int, offset: int) -> None:
        with self._lock:
            self.place(seed, offset)
            if self.sequential is not None:
                self.sequential.seed(seed)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_generator, (str(self._device), self._state())

    def __repr__(self) -> str:
        seed, offset = self.standing()
        place = f"offset={offset}" if self.sequential is None else f"engine={self.engine}"
        return f"<tangrad.Generator device={self._device} seed={seed} {place}>"


def _rebuild_generator(device: Any, state: bytes) -> Generator:
    made = Generator(device)
    made._set_bytes(state)
    return made


# --- the default generators ----------------------------------------------------------------

# What all default generators were last seeded with; None: each has a seed of its own.
_last_seed = _seed_of_environment()
default_generator = Generator("cpu").manual_seed(
    _C.first_seed if _last_seed is None else _last_seed
)
_defaults: dict[str, Generator] = {"cpu": default_generator}
# The same ones by what was asked with: a device's name is text to make.
_by_device: dict[Any, Generator] = {}
# What devices say that theirs starts from, by type: `DeviceDriver.initial_seed`.
initial_seeds: dict[str, Callable[[int], int]] = {}
_defaults_lock = Lock()


def _first_seed(device: Any) -> int:
    asked = initial_seeds.get(device.type)
    return _unforeseeable() if asked is None else asked(device.index or 0)


def get_default_generator(device: Any = "cpu") -> Generator:
    """Return the generator that ops on a device use if none is given.

    Args:
        device: a device or its name. A device not asked for before starts at the seed last
            given to `manual_seed`, in a program that seeded nothing at one of its own.
    """
    found = _by_device.get(device)
    if found is not None:
        return found
    name = str(device)
    if ":" in name:
        name = str(_as_device(device))
    with _defaults_lock:
        if name not in _defaults:
            _defaults[name] = made = Generator(device)
            made.manual_seed(_first_seed(made.device) if _last_seed is None else _last_seed)
        _by_device[device] = _defaults[name]
        return _defaults[name]


def get_engine() -> str:
    """Return the name of the engine that new generators have."""
    return _engine


def set_engine(name: str) -> None:
    """Choose how random numbers are made, and start the default generators anew from their seeds.

    Args:
        name: "philox" (default) is counter-based: the same numbers on every device, fast.
            Others come with packages: "mt19937" draws what PyTorch's CPU draws from the same seed,
            bit for bit, one number after the other on the host, whatever the device is.

    Raises:
        ValueError: there is no such engine.
    """
    _start_with(name, "set_engine")


def use_engine_of_environment() -> None:
    """Choose the engine that `TANGRAD_RNG` asks for, once packages can be found.

    Raises:
        ValueError: there is no such engine.
    """
    name = os.environ.get("TANGRAD_RNG", "")
    if name not in ("", _PHILOX):
        _start_with(name, "TANGRAD_RNG")


def _start_with(name: str, where: str) -> None:
    global _engine
    _engine_class(name, where)
    _engine = name
    with _defaults_lock:
        for generator in _defaults.values():
            generator._use(name)


def manual_seed(seed: int) -> Generator:
    """Seed the default generators of all devices; return that of the CPU.

    Args:
        seed: 64-bit integer; a negative one counts modulo 2**64.

    Raises:
        RuntimeError: the seed does not fit in 64 bits.
    """
    global _last_seed
    value = _as_seed(seed)
    with _defaults_lock:
        _last_seed = value
        for generator in _defaults.values():
            generator.manual_seed(value)
    return default_generator


def seed() -> int:
    """Seed the default generators of all devices unforeseeably; return the seed."""
    value = _unforeseeable()
    manual_seed(value)
    return value


def initial_seed() -> int:
    """Return the seed of the CPU's default generator."""
    return default_generator.initial_seed()


def default_states() -> dict[str, bytes]:
    """Return the state of every default generator, by device."""
    return {name: generator._state() for name, generator in _defaults.items()}


def set_default_states(states: dict[str, bytes]) -> None:
    """Set every default generator to what `default_states` returned; later ones begin anew."""
    for name, generator in _defaults.items():
        if name in states:
            generator._set_bytes(states[name])
        else:
            generator.manual_seed(generator.initial_seed() if _last_seed is None else _last_seed)


def get_rng_state() -> Any:
    """Return the state of the CPU's default generator, a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
    """Set the state of the CPU's default generator to what `get_rng_state` returned."""
    default_generator.set_state(new_state)


def thread_safe_generator() -> Generator | None:
    """Return the generator of the worker thread of a data loader that calls: None.

    Workers are processes here, whose default generators are their own; None stands for those.
    """
    return None


class fork_rng:
    """Give default generators their states back at the end of a `with` block.

    Args:
        devices: whose default generators, beside the CPU's; all that are in use if None.
        enabled: False makes the block do nothing.
    """

    def __init__(self, devices: Iterable[Any] | None = None, enabled: bool = True) -> None:
        self._devices = None if devices is None else list(devices)
        self._enabled = enabled
        self._saved: list[tuple[Generator, bytes]] = []

    def __enter__(self) -> None:
        if not self._enabled:
            return
        names = list(_defaults) if self._devices is None else ["cpu", *self._devices]
        generators = [get_default_generator(name) for name in names]
        self._saved = [(generator, generator._state()) for generator in generators]

    def __exit__(self, *exc_info: object) -> None:
        for generator, state in self._saved:
            generator._set_bytes(state)
        self._saved = []
