"""The modules of a model as a graph, by a call: nodes are calls, edges what flows between."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin.observe import tensors_in
from tangrad_tensorboard import proto

_VERSION = 22  # of GraphDef, the oldest that readers take


class Recorder:
    """Record the calls of the innermost modules of a model.

    What lies between two modules is followed through the graph of autograd, so an edge goes
    through functions too; where nothing requires a gradient, only tensors handed on are found.
    """

    def __init__(self, model: Any) -> None:
        self.nodes: list[tuple[str, str, list[str]]] = []
        self.makers: dict[Any, str] = {}  # a tensor's id or node of the graph: name
        self.kept: list[Any] = []  # ids are of living tensors only
        self.used: dict[str, int] = {}
        self.root = type(model).__name__
        self.handles = [
            module.register_forward_hook(self._recorder(f"{self.root}/{name.replace('.', '/')}"))
            for name, module in model.named_modules()
            if not any(True for _ in module.children())
        ]

    def close(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()

    def _recorder(self, name: str) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            count = self.used[name] = self.used.get(name, 0) + 1
            own = name.rstrip("/") if count == 1 else f"{name.rstrip('/')}_{count}"
            self.add(own, type(module).__name__, args, output)

        return hook

    def add(self, name: str, op: str, inputs: Any, outputs: Any) -> None:
        """Add a node."""
        self.nodes.append((name, op, self._sources(inputs)))
        for x in tensors_in(outputs):
            self.kept.append(x)
            self.makers[id(x)] = name
            if x.grad_fn is not None:
                self.makers[x.grad_fn] = name

    def _sources(self, inputs: Any) -> list[str]:
        found: dict[str, None] = {}
        for x in tensors_in(inputs):
            name = self.makers.get(id(x))
            if name is not None:
                found[name] = None
                continue
            ahead, seen = [x.grad_fn], set()
            while ahead:
                node = ahead.pop()
                if node is None or node in seen:
                    continue
                seen.add(node)
                if node in self.makers:
                    found[self.makers[node]] = None
                else:
                    ahead += [inner for inner, _ in node.next_functions]
        return list(found)


def graph_of(model: Any, inputs: Any) -> bytes:
    """Return the `GraphDef` of a model.

    Args:
        model: the module.
        inputs: what it is called with: a tensor, or a tuple of arguments.
    """
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    recorder = Recorder(model)
    training = {module: module.training for module in model.modules()}
    try:
        model.eval()
        for i, x in enumerate(tensors_in(args)):
            recorder.add(f"input/{i}", "Placeholder", (), x)
        with tangrad.enable_grad():
            output = model(*args)
        recorder.add("output", "Output", output, ())
    finally:
        recorder.close()
        for module, mode in training.items():
            module.training = mode
    encoded = b""
    for name, op, sources in recorder.nodes:
        node = proto.data(1, name) + proto.data(2, op)
        encoded += proto.data(1, node + b"".join(proto.data(3, source) for source in sources))
    return encoded + proto.data(4, proto.integer(1, _VERSION))
