"""Graphs: what a program gave a GPU, captured once and launched again as a whole.

A captured launch has the addresses that it had. Memory that is taken during a capture therefore
comes from a pool of its own, which hands it out to nobody else as long as the graph lives.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import tangrad
from tangrad import Tensor
from tangrad.plugin import private_allocator, use_allocator
from tangrad.utils import _pytree
from tangrad_cuda.namespace import memory, streams
from tangrad_cuda.namespace._place import driver
from tangrad_cuda.namespace.devices import synchronize
from tangrad_cuda.namespace.random import generators

_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
_numbers = itertools.count(1)

Handle = tuple[int, int]


class _Pool:
    """Memory that graphs share, an allocator for each device.

    Attributes:
        users: how many graphs have memory of it.
    """

    def __init__(self) -> None:
        self.users = 0
        self._allocators: dict[int, Any] = {}

    def allocator(self, index: int) -> Any:
        """Return the allocator of a device."""
        if index not in self._allocators:
            self._allocators[index] = private_allocator(tangrad.device("cuda", index))
        return self._allocators[index]


_pools: dict[Handle, _Pool] = {}


def graph_pool_handle() -> Handle:
    """Return a name for memory that several graphs share, to be given to each as `pool`.

    Graphs that share memory have to be replayed in the order in which they were captured.
    """
    return (0, next(_numbers))


def _refuse_counted_steps(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Refuse a captured step that depends on its number, which replays would not advance."""
    counts = any("step" in state for state in optimizer.state.values())
    if counts and streams.is_current_stream_capturing():
        raise RuntimeError(
            f"CUDAGraph: {type(optimizer).__name__} counts its steps on the host, so each replay "
            "would make this one again; call step() outside of the capture, or take SGD"
        )


class CUDAGraph:
    """Work of a GPU that was captured, and is launched again by `replay`.

    A replay reads and writes the memory that the capture did: give it new inputs by copying into
    those of the capture, and read its results there. Python does not run again.

    Args:
        keep_graph: whether `capture_end` leaves the graph to be looked at; `instantiate`, or the
            first `replay`, then makes it ready.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._keep_graph = keep_graph
        self._handle: Handle | None = None
        self._graph = self._executable = 0
        self._stream: int | None = None  # while it captures
        self._index = 0
        self._before: Any = None
        self._offsets: list[int] = []
        self._needed: list[Any] = []
        self._steps: Any = None
        self._debugged = False

    def capture_begin(self, pool: Handle | None = None, capture_error_mode: str = "global") -> None:
        """Have what this thread gives its current stream become part of the graph.

        Args:
            pool: of which memory is taken, by `graph_pool_handle` or `pool` of another graph; its
                own.
            capture_error_mode: which calls that may wait are errors meanwhile: "global", of every
                thread; "thread_local", of this one; "relaxed": none.

        An optimizer that counts its steps on the host raises in a capture.

        Raises:
            RuntimeError: the current stream is the default one, or captures already; this graph
                was captured before.
            ValueError: the mode is none of these.
        """
        if capture_error_mode not in _MODES:
            raise ValueError(
                f"CUDAGraph.capture_begin: capture_error_mode is one of {', '.join(_MODES)}, not "
                f"{capture_error_mode!r}"
            )
        opened = driver()
        index = opened.current_device()
        stream = opened.streams.current_stream(index)
        if self._graph or self._executable or self._stream is not None:
            raise RuntimeError(
                "CUDAGraph.capture_begin: it holds a graph already: reset() it first"
            )
        if stream == opened.streams.default_stream(index):
            raise RuntimeError(
                "CUDAGraph.capture_begin: the default stream cannot be captured; enter another one "
                "by tangrad.cuda.stream, or use tangrad.cuda.graph. Replays may go there"
            )
        opened.contexts.enter(index)
        handle = graph_pool_handle() if pool is None else tuple(pool)
        place = tangrad.device("cuda", index)
        held = _pools.setdefault(handle, _Pool())  # type: ignore[arg-type]
        opened.api.call(
            "cuStreamBeginCapture_v2", opened.streams.handle(stream), _MODES[capture_error_mode]
        )
        held.users += 1
        self._handle, self._index, self._stream = handle, index, stream  # type: ignore[assignment]
        self._before = use_allocator(place, held.allocator(index))
        self._offsets = _offsets()
        opened.streams.captures.append(self._needed)
        optimizers = sys.modules.get("tangrad.optim.optimizer")  # not loaded: there are none
        if optimizers is not None:
            self._steps = optimizers.register_optimizer_step_post_hook(_refuse_counted_steps)

    def capture_end(self) -> None:
        """End the capture.

        Raises:
            RuntimeError: none had begun; something cannot be captured, such as waiting; random
                numbers were drawn, which would be the same in each replay.
        """
        if self._stream is None:
            raise RuntimeError("CUDAGraph.capture_end: no capture has begun")
        opened, stream = driver(), self._stream
        made = ctypes.c_void_p()
        try:
            opened.contexts.enter(self._index)
            opened.api.call("cuStreamEndCapture", opened.streams.handle(stream), ctypes.byref(made))
        except RuntimeError:
            self._stop()
            self.reset()
            raise
        self._stop()
        self._graph = made.value or 0
        if _offsets() != self._offsets:
            self.reset()
            raise RuntimeError(
                "CUDAGraph.capture_end: random numbers were drawn in the capture (by dropout, rand "
                "or their like), and each replay would draw the same; draw them outside, into a "
                "tensor that the graph reads"
            )
        count = ctypes.c_size_t()
        opened.api.call("cuGraphGetNodes", self._graph, None, ctypes.byref(count))
        if not count.value:
            warnings.warn(
                "the captured graph is empty: nothing was given to the capturing stream of its "
                "device",
                stacklevel=2,
            )
        if not self._keep_graph:
            self.instantiate()

    def _stop(self) -> None:
        """Leave the state of a capture, which the driver has left."""
        opened, self._stream = driver(), None
        use_allocator(tangrad.device("cuda", self._index), self._before)
        self._before = None
        opened.streams.captures.remove(self._needed)
        if self._steps is not None:
            self._steps.remove()
            self._steps = None

    def instantiate(self) -> None:
        """Make the graph ready to be launched.

        Raises:
            RuntimeError: nothing was captured.
        """
        if not self._graph:
            raise RuntimeError("CUDAGraph.instantiate: nothing was captured")
        opened = driver()
        opened.contexts.enter(self._index)
        if self._executable:
            opened.api.call("cuGraphExecDestroy", self._executable)
            self._executable = 0
        self._executable = opened.api.made("cuGraphInstantiateWithFlags", self._graph, 0)
        if not (self._keep_graph or self._debugged):
            opened.api.call("cuGraphDestroy", self._graph)
            self._graph = 0

    def replay(self) -> None:
        """Launch the graph in the current stream of the device that it was captured on.

        Raises:
            RuntimeError: nothing was captured.
        """
        if not self._executable:
            if not self._graph:
                raise RuntimeError("CUDAGraph.replay: nothing was captured; use tangrad.cuda.graph")
            self.instantiate()
        opened = driver()
        opened.contexts.enter(self._index)
        stream = opened.streams.current_stream(self._index)
        opened.api.call("cuGraphLaunch", self._executable, opened.streams.handle(stream))

    def reset(self) -> None:
        """Let go of what was captured, and of its memory."""
        opened = driver()
        if self._stream is not None:
            raise RuntimeError("CUDAGraph.reset: a capture runs: end it first")
        if opened.contexts.gone:
            return
        if self._graph or self._executable:
            opened.contexts.enter(self._index)
        graph, executable, self._graph, self._executable = self._graph, self._executable, 0, 0
        if executable:
            opened.api.call("cuGraphExecDestroy", executable)
        if graph:
            opened.api.call("cuGraphDestroy", graph)
        self._needed = []
        handle, self._handle = self._handle, None
        if handle is not None:
            held = _pools[handle]
            held.users -= 1
            if not held.users:
                del _pools[handle]

    def pool(self) -> Handle:
        """Return the name of the memory that the graph uses, for others to share.

        Raises:
            RuntimeError: nothing was captured.
        """
        if self._handle is None:
            raise RuntimeError("CUDAGraph.pool: nothing was captured")
        return self._handle

    def enable_debug_mode(self) -> None:
        """Keep the graph, so that `debug_dump` can write it."""
        self._debugged = True

    def debug_dump(self, debug_path: str | os.PathLike[str]) -> None:
        """Write the graph as a DOT file.

        Raises:
            RuntimeError: nothing was captured, or `enable_debug_mode` was not called before.
        """
        if not self._graph:
            raise RuntimeError(
                "CUDAGraph.debug_dump: there is no graph; call enable_debug_mode() before the "
                "capture"
            )
        driver().api.call("cuGraphDebugDotPrint", self._graph, os.fsencode(debug_path), 0)

    def raw_cuda_graph(self) -> int:
        """Return the driver's handle of the graph, which `keep_graph=True` keeps.

        Raises:
            RuntimeError: there is none.
        """
        if not self._graph:
            raise RuntimeError("CUDAGraph.raw_cuda_graph: needs keep_graph=True, and a capture")
        return self._graph

    def raw_cuda_graph_exec(self) -> int:
        """Return the driver's handle of what is launched.

        Raises:
            RuntimeError: there is none.
        """
        if not self._executable:
            raise RuntimeError("CUDAGraph.raw_cuda_graph_exec: nothing was made ready")
        return self._executable

    def __del__(self) -> None:
        # What cannot be given back is lost, and nobody who lets a graph go can do about it.
        with contextlib.suppress(Exception):
            if self._stream is not None:
                self.capture_end()
            self.reset()


def _offsets() -> list[int]:
    """Return the places of the devices' random numbers."""
    return [generator.get_offset() for generator in generators()]


class graph:  # the name is PyTorch's
    """Capture what a `with` block gives the GPU.

    Args:
        cuda_graph: takes it.
        pool, capture_error_mode: as `CUDAGraph.capture_begin` takes them.
        stream: in which to capture; by default one that all captures share.
    """

    default_capture_stream: ClassVar[Any] = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Handle | None = None,
        stream: Any = None,
        capture_error_mode: str = "global",
    ) -> None:
        if stream is None:
            cls = type(self)
            here = driver().current_device()
            if (
                cls.default_capture_stream is None
                or cls.default_capture_stream.device.index != here
            ):
                cls.default_capture_stream = streams.Stream()
            stream = cls.default_capture_stream
        self.cuda_graph, self.pool = cuda_graph, pool
        self.capture_stream, self.capture_error_mode = stream, capture_error_mode
        self._context = streams.stream(stream)

    def __enter__(self) -> None:
        # What waits to be let go would be so in the capture.
        synchronize()
        gc.collect()
        memory.empty_cache()
        self._context.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._context.__exit__()
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.cuda_graph.capture_end()
        except Exception:
            # The error of the body tells what happened.
            if error is None:
                raise
        finally:
            self._context.__exit__(kind, error, trace)


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Handle | None = None,
) -> Any:
    """Return functions whose work, and that of their gradients, is captured and replayed.

    A module is given back with another `forward`, which runs the graph where the module is in the
    mode (training or not) that it is in now. Results are copies that the next call leaves alone.

    Args:
        callables: a function or module of tensors, or a tuple of them.
        sample_args: a tuple of example tensors for it, or a tuple of such tuples. Later calls need
            the same shapes, dtypes and `requires_grad`.
        num_warmup_iters: runs before the capture.
        allow_unused_input: whether inputs may have no part in the results.
        pool: of which memory is taken.

    Raises:
        RuntimeError: a module has hooks; something cannot be captured.
        TypeError: an example is no tensor.
    """
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    if len(functions) != len(samples):
        raise ValueError(
            f"make_graphed_callables: {len(functions)} callables and {len(samples)} sample_args"
        )
    handle = graph_pool_handle() if pool is None else pool
    made = [
        _graphed(function, args, num_warmup_iters, allow_unused_input, handle)
        for function, args in zip(functions, samples, strict=True)
    ]
    return made[0] if single else tuple(made)


def _graphed(
    function: Any, args: Sequence[Any], warmup: int, allow_unused: bool, pool: Handle
) -> Any:
    """Return one function of graphs."""
    # A module is known by what it has: networks are another package.
    is_module = hasattr(function, "named_parameters") and hasattr(function, "training")
    if is_module and any(
        getattr(function, name)
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    ):
        raise RuntimeError("make_graphed_callables: a module with hooks cannot be captured")
    inputs = list(_pytree.tree_leaves(tuple(args)))
    if not all(isinstance(x, Tensor) for x in inputs):
        raise TypeError("make_graphed_callables: sample_args are tensors")
    parameters = [p for p in function.parameters() if p.requires_grad] if is_module else []
    run = function.forward if is_module else function
    wanted = [x for x in inputs if x.requires_grad] + parameters

    def gradients(outputs: list[Tensor], grads: list[Tensor]) -> list[Any]:
        pairs = [(y, g) for y, g in zip(outputs, grads, strict=True) if y.requires_grad]
        if not pairs or not wanted:
            return [None] * len(wanted)
        ys, gs = zip(*pairs, strict=True)
        return list(tangrad.autograd.grad(ys, wanted, gs, allow_unused=allow_unused))

    side = streams.Stream()
    synchronize()
    with streams.stream(side):
        for _ in range(max(warmup, 1)):  # kernels are compiled outside of the capture
            found = _pytree.tree_leaves(run(*args))
            gradients(found, [tangrad.empty_like(y) for y in found])
    synchronize()
    forward, backward = CUDAGraph(), CUDAGraph()
    with graph(forward, pool=pool):
        result = run(*args)
    outputs, spec = _pytree.tree_flatten(result)
    seeds = [tangrad.empty_like(y) for y in outputs]
    differentiable = any(y.requires_grad for y in outputs) and bool(wanted)
    static: list[Any] = []
    if differentiable:
        with graph(backward, pool=pool):
            static = gradients(outputs, seeds)
    held = [y.detach() for y in outputs]

    class Replayed(tangrad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            for target, value in zip(inputs, given[: len(inputs)], strict=True):
                if target.data_ptr() != value.data_ptr():
                    target.detach().copy_(value)
            forward.replay()
            return tuple(y.clone() for y in held)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            for seed, grad in zip(seeds, grads, strict=True):
                seed.copy_(grad)
            backward.replay()
            rest = iter(static)
            found = [None if (g := next(rest)) is None else g.clone() for _ in wanted]
            ahead = iter(found)
            of_inputs = [next(ahead) if x.requires_grad else None for x in inputs]
            return (*of_inputs, *ahead)

    def call(*given: Any) -> Any:
        leaves = _pytree.tree_leaves(given)
        if len(leaves) != len(inputs):
            raise RuntimeError(
                f"a graphed callable takes {len(inputs)} tensors, as its sample_args; got "
                f"{len(leaves)}"
            )
        for k, (wanted_one, x) in enumerate(zip(inputs, leaves, strict=True)):
            if x.shape != wanted_one.shape or x.dtype != wanted_one.dtype:
                raise RuntimeError(
                    f"a graphed callable was captured with {list(wanted_one.shape)} of "
                    f"{wanted_one.dtype} as input {k}; got {list(x.shape)} of {x.dtype}"
                )
        made = Replayed.apply(*leaves, *parameters) if differentiable else _replay(leaves)
        found = made if isinstance(made, tuple) else (made,)
        return _pytree.tree_unflatten(list(found), spec)

    def _replay(leaves: list[Any]) -> Any:
        for target, value in zip(inputs, leaves, strict=True):
            if target.data_ptr() != value.data_ptr():
                target.detach().copy_(value)
        forward.replay()
        return tuple(y.clone() for y in held)

    if not is_module:
        return call
    return _with_forward(function, call, run)


def _with_forward(module: Any, call: Callable[..., Any], plain: Callable[..., Any]) -> Any:
    """Have a module run its graph in the mode in which it was captured."""
    mode = module.training

    def forward(*args: Any, **kwargs: Any) -> Any:
        if module.training == mode and not kwargs:
            return call(*args)
        return plain(*args, **kwargs)

    module.forward = forward
    return module
