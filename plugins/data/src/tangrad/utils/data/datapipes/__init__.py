"""Data pipes: data sets that are made of each other, and the decorators of their classes.

A pipe over a stream has one valid iterator at a time: making another one resets the pipe.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from tangrad.utils.data.dataset import Dataset, IterableDataset

__all__ = [
    "DFIterDataPipe",
    "DataChunk",
    "IterDataPipe",
    "MapDataPipe",
    "argument_validation",
    "functional_datapipe",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "runtime_validation",
    "runtime_validation_disabled",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class DataChunk(list[T]):
    """A list of samples that a pipe hands on as one.

    Args:
        items: the samples.
    """

    def __init__(self, items: Iterable[T]) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """Return the samples as text."""
        return indent + "[" + ", ".join([str(item) for item in self]) + "]"

    def raw_iterator(self) -> Iterator[T]:
        """Iterate over what the chunk was made of."""
        yield from self.items


class _Pipe:
    """What pipes over streams and by key have in common: functions that make further pipes."""

    functions: ClassVar[dict[str, Callable[..., Any]]]
    reduce_ex_hook: ClassVar[Callable[[Any], Any] | None] = None
    getstate_hook: ClassVar[Callable[[Any], Any] | None] = None
    _kind: ClassVar[Any]

    def __getattr__(self, name: str) -> Any:
        if name in type(self).functions:
            return functools.partial(type(self).functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Make a function a method of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: type, enable_df_api_tracing: bool = False
    ) -> None:
        """Make a method of all pipes of this kind that makes a pipe of a class.

        Raises:
            RuntimeError: there is a method of the name.
        """
        if function_name in cls.functions:
            raise RuntimeError(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )

        def make(source: Any, *args: Any, **kwargs: Any) -> Any:
            return cls_to_register(source, *args, **kwargs)

        cls.functions[function_name] = functools.update_wrapper(
            make, cls_to_register, assigned=("__doc__",), updated=()
        )

    @classmethod
    def set_getstate_hook(cls, hook_fn: Callable[[Any], Any] | None) -> None:
        """Set what makes the state of pipes for pickle; None ends it.

        Raises:
            RuntimeError: another one is set.
        """
        if cls._kind.getstate_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing getstate_hook")
        cls._kind.getstate_hook = hook_fn

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn: Callable[[Any], Any] | None) -> None:
        """Set what reduces pipes for pickle; None ends it.

        Raises:
            RuntimeError: another one is set.
        """
        if cls._kind.reduce_ex_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing reduce_ex_hook")
        cls._kind.reduce_ex_hook = hook_fn

    def __getstate__(self) -> Any:
        state = {name: value for name, value in self.__dict__.items() if name != "_valid"}
        hook = type(self)._kind.getstate_hook
        return state if hook is None else hook(state)

    def __reduce_ex__(self, protocol: Any) -> Any:
        hook = type(self)._kind.reduce_ex_hook
        if hook is not None:
            try:
                return hook(self)
            except NotImplementedError:
                pass
        return super().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return str(type(self).__qualname__)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]


def invalidated(pipe: Any) -> RuntimeError:
    """Return the error of an iterator that another one of its pipe has taken the place of."""
    return RuntimeError(
        "This iterator has been invalidated because another iterator has been created from the "
        f"same IterDataPipe: {pipe!r}. Make a copy of the pipe for each iterator that is to be "
        "used beside another"
    )


class _OnlyIterator:
    """Iterate as long as no other iterator of the pipe is made."""

    def __init__(self, pipe: Any, inner: Iterator[Any]) -> None:
        self.pipe, self.inner = pipe, inner

    def __iter__(self) -> _OnlyIterator:
        return self

    def __next__(self) -> Any:
        if self.pipe.__dict__.get("_valid") is not self:
            raise invalidated(self.pipe)
        return next(self.inner)


def _single(iterate: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """Let an `__iter__` reset its pipe, and make the only valid iterator."""

    @functools.wraps(iterate)
    def wrapper(self: Any) -> Iterator[Any]:
        self.reset()
        inner = iterate(self)
        if inner is self:
            return inner
        only = _OnlyIterator(self, inner)
        self.__dict__["_valid"] = only
        return only

    return wrapper


class IterDataPipe(_Pipe, IterableDataset[T_co]):
    """A pipe over a stream: a subclass defines `__iter__`, and `reset` if it has a state."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}
    # Pipes of others write them into their state.
    _valid_iterator_id: int | None = None
    _number_of_samples_yielded = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("__iter__")
        if own is not None:
            type.__setattr__(cls, "__iter__", _single(own))

    def __iter__(self) -> Iterator[T_co]:
        return self

    def reset(self) -> None:
        """Begin anew; called by every `iter()`."""


class DFIterDataPipe(IterDataPipe[T_co]):
    """A pipe over a stream of data frames."""

    def _is_dfpipe(self) -> bool:
        return True


class MapDataPipe(_Pipe, Dataset[T_co]):
    """A pipe by key: a subclass defines `__getitem__` and mostly `__len__`."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


IterDataPipe._kind, MapDataPipe._kind = IterDataPipe, MapDataPipe


class functional_datapipe:
    """Decorate a class of pipes: all pipes get a method of the name that makes such a pipe.

    Args:
        name: of the method.
        enable_df_api_tracing: ignored.
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name
        self.enable_df_api_tracing = enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        """Register the class and return it.

        Raises:
            TypeError: it is no class of pipes.
            RuntimeError: there is a method of the name.
        """
        kind = cls.cls if isinstance(cls, non_deterministic) else cls
        kind = getattr(getattr(cls, "__self__", None), "cls", kind)
        for base in (IterDataPipe, MapDataPipe):
            if isinstance(kind, type) and issubclass(kind, base):
                base.register_datapipe_as_function(self.name, cls)
                return cls
        raise TypeError(f"`functional_datapipe` can only decorate classes of pipes, got {cls!r}")


# --- determinism -----------------------------------------------------------------------------

_deterministic = False


class guaranteed_datapipes_determinism:
    """Refuse, inside a `with`, pipes that are declared not to be deterministic."""

    def __init__(self) -> None:
        global _deterministic
        self.prev = _deterministic
        _deterministic = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        global _deterministic
        _deterministic = self.prev


class non_deterministic:
    """Declare a class of pipes not to be deterministic, always or by a function of its arguments.

    Args:
        arg: the class, or the function, which tells whether a pipe is not deterministic.

    Raises:
        TypeError: it is neither.
    """

    def __init__(self, arg: Any) -> None:
        self.cls: Any = None
        self.deterministic_fn: Callable[..., bool] | None = None
        if isinstance(arg, type):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(
                    "Only `IterDataPipe` can be decorated with `non_deterministic`, but "
                    f"{arg.__name__} is found"
                )
            self.cls = arg
        elif callable(arg):
            self.deterministic_fn = arg
        else:
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make a pipe of the class; or, if there is a function but no class, decorate a class."""
        if self.cls is None:
            found = args[0] if args else None
            if not (isinstance(found, type) and issubclass(found, IterDataPipe)):
                name = getattr(found, "__name__", found)
                raise TypeError(f"Only `IterDataPipe` can be decorated, but {name} is found")
            self.cls = found
            return self.deterministic_wrapper_fn
        if _deterministic:
            raise TypeError(self._refusal("is non-deterministic"))
        return self.cls(*args, **kwargs)

    def deterministic_wrapper_fn(self, *args: Any, **kwargs: Any) -> Any:
        """Make a pipe, unless the function says that it would not be deterministic."""
        assert self.deterministic_fn is not None
        answer = self.deterministic_fn(*args, **kwargs)
        if not isinstance(answer, bool):
            raise TypeError(
                "deterministic_fn of `non_deterministic` decorator is required to return a "
                f"boolean value, but {type(answer)} is found"
            )
        if _deterministic and answer:
            raise TypeError(self._refusal("is non-deterministic with the inputs"))
        return self.cls(*args, **kwargs)

    def _refusal(self, how: str) -> str:
        return (
            f"{self.cls.__name__} {how}, but you set 'guaranteed_datapipes_determinism'. You can "
            "turn off determinism for this DataPipe if that is acceptable for your application"
        )


# --- types of samples --------------------------------------------------------------------------

_validates = True


class runtime_validation_disabled:
    """Leave out, inside a `with`, the checks of `runtime_validation`."""

    def __init__(self) -> None:
        global _validates
        self.prev = _validates
        _validates = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        global _validates
        _validates = self.prev


def _type_of_samples(pipe: Any) -> Any:
    """Return X of a class that is declared as `class A(IterDataPipe[X])`, otherwise Any."""
    cls = get_origin(pipe) or pipe
    if get_origin(pipe) is not None:
        return get_args(pipe)[0]
    for base in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type) and issubclass(origin, IterDataPipe):
            return get_args(base)[0]
    return Any


def _alternatives(hint: Any) -> tuple[Any, ...]:
    unions = (Union, type(int | str))
    return get_args(hint) if get_origin(hint) in unions else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is of a type; what is inside of containers is checked for tuples."""
    if hint is Any or isinstance(hint, TypeVar):
        return True
    alternatives = _alternatives(hint)
    if len(alternatives) > 1:
        return any(_fits(value, one) for one in alternatives)
    origin = get_origin(hint)
    if origin is tuple and isinstance(value, tuple):
        parts = get_args(hint)
        if len(parts) == 2 and parts[1] is ...:
            return all(_fits(item, parts[0]) for item in value)
        return len(parts) == len(value) and all(
            _fits(item, part) for item, part in zip(value, parts, strict=True)
        )
    kind = origin or hint
    return value is None if kind is None else not isinstance(kind, type) or isinstance(value, kind)


def _narrower(one: Any, other: Any) -> bool:
    """Tell whether all of a type is of another type."""
    if Any in (one, other) or isinstance(other, TypeVar) or one == other:
        return True
    several = _alternatives(one)
    if len(several) > 1:
        return all(_narrower(part, other) for part in several)
    several = _alternatives(other)
    if len(several) > 1:
        return any(_narrower(one, part) for part in several)
    kinds = (get_origin(one) or one, get_origin(other) or other)
    return all(isinstance(kind, type) for kind in kinds) and issubclass(*kinds)


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function: arguments hinted as pipes must be pipes of such samples.

    Raises:
        TypeError: when it is called, if one is not.
    """
    signature, hints = inspect.signature(f), get_type_hints(f)

    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            hint = hints.get(name)
            kind = get_origin(hint) or hint
            if not (isinstance(kind, type) and issubclass(kind, IterDataPipe)):
                continue
            if not isinstance(value, IterDataPipe):
                raise TypeError(
                    f"Expected argument '{name}' as a IterDataPipe, but found {type(value)}"
                )
            found, wanted = _type_of_samples(type(value)), _type_of_samples(hint)
            if not _narrower(found, wanted):
                raise TypeError(
                    f"Expected type of argument '{name}' as a subtype of hint {wanted}, but found "
                    f"{found}"
                )
        return f(*args, **kwargs)

    return wrapper


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the `__iter__` of a pipe: every sample must be of the declared type.

    Raises:
        TypeError: this is no `__iter__`.
        RuntimeError: when it is iterated over, if a sample is of another type.
    """
    if f.__name__ != "__iter__":
        raise TypeError(f"Can not decorate function {f.__name__} with 'runtime_validation'")

    @functools.wraps(f)
    def wrapper(self: Any) -> Iterator[Any]:
        wanted = _type_of_samples(type(self))
        for sample in f(self):
            if _validates and not _fits(sample, wanted):
                raise RuntimeError(
                    f"Expected an instance as subtype of {wanted}, but found "
                    f"{sample}({type(sample)})"
                )
            yield sample

    return wrapper


# Pipes have methods by the names of these.
from tangrad.utils.data.datapipes import iter as iter  # noqa: E402
from tangrad.utils.data.datapipes import map as map  # noqa: E402
