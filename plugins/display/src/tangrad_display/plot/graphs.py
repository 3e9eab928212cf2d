"""The computation of one call as a graph: ops or whole modules, with shapes."""

from __future__ import annotations

from typing import Any, NamedTuple

import tangrad
from tangrad import nn
from tangrad.overrides import TorchFunctionMode
from tangrad.plugin.observe import tensors_in
from tangrad_display.plot.drawing import axes_of

_MOST = 400  # nodes that are drawn
_WIDE, _HIGH = 2.6, 0.95  # inches from one node to the next


class Node(NamedTuple):
    """One box of a drawn graph.

    Attributes:
        title: name of an op, or path and class of a module without submodules.
        shape: of the result.
        module: path of the module that it belongs to.
        sources: numbers of the nodes whose results it takes.
    """

    title: str
    shape: str
    module: str
    sources: tuple[int, ...]


def graph(model: Any, *inputs: Any, ax: Any = None, **kwargs: Any) -> Any:
    """Call a model once and draw which ops and modules gave what to which.

    A module without submodules is one box; what happens beside such modules is a box per op.

    Args:
        model: a module, or a function of tensors.
        *inputs: what it is called with.
        ax: matplotlib axes to draw into.
        **kwargs: keyword arguments of the call.

    Returns:
        The axes.

    Raises:
        ValueError: there are more than 400 boxes; draw a submodule.
    """
    nodes = recorded(model, *inputs, **kwargs)
    if len(nodes) > _MOST:
        raise ValueError(
            f"plot.graph: {len(nodes)} boxes, {_MOST} at most fit; draw a submodule by itself"
        )
    layers = _layers(nodes)
    widest = max((len(layer) for layer in layers), default=1)
    ax = axes_of(ax, (max(4.0, _WIDE * widest), max(2.0, _HIGH * len(layers))))
    _draw(ax, nodes, layers)
    return ax


def recorded(model: Any, *inputs: Any, **kwargs: Any) -> list[Node]:
    """Call a model once and return the boxes of its graph, each after what it takes.

    Args:
        model: a module, or a function of tensors.
        *inputs: what it is called with.
        **kwargs: keyword arguments of the call.
    """
    recorder = _Recorder(model)
    with tangrad.no_grad(), recorder:
        recorder.take_inputs((inputs, kwargs))
        model(*inputs, **kwargs)
    return recorder.nodes


class _Recorder(TorchFunctionMode):
    """Make a node of each op that is called outside of innermost modules, and of each of these."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.made_by: dict[int, int] = {}
        self.alive: list[Any] = []  # ids of tensors are told apart as long as none is freed
        self.path: list[str] = []
        self.inside = 0  # calls of innermost modules that are under way
        self.hooks: list[Any] = []
        modules = model.named_modules() if isinstance(model, nn.Module) else ()
        for path, module in modules:
            innermost = next(module.children(), None) is None
            self.hooks += [
                module.register_forward_pre_hook(self._entering(path, innermost)),
                module.register_forward_hook(self._leaving(path, innermost), always_call=True),
            ]

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)
        for hook in self.hooks:
            hook.remove()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.inside:
            self._add(getattr(func, "__name__", str(func)), (args, kwargs), result)
        return result

    def take_inputs(self, given: Any) -> None:
        """Make a node of each tensor that the model is called with."""
        for i, tensor in enumerate(tensors_in(given)):
            self._node(f"input {i}", "", (), [tensor])

    def _entering(self, path: str, innermost: bool) -> Any:
        def enter(module: Any, args: Any) -> None:
            self.path.append(path)
            self.inside += innermost

        return enter

    def _leaving(self, path: str, innermost: bool) -> Any:
        def leave(module: Any, args: Any, result: Any) -> None:
            self.path.pop()
            self.inside -= innermost
            if innermost and not self.inside:
                kind = type(module).__name__
                self._add(f"{path}: {kind}" if path else kind, args, result)

        return leave

    def _add(self, title: str, given: Any, result: Any) -> None:
        results = list(tensors_in(result))
        if not results or title in ("__get__", "__set__"):
            return
        known = [self.made_by[id(t)] for t in tensors_in(given) if id(t) in self.made_by]
        fresh = [t for t in results if id(t) not in self.made_by]
        # What is made of constants alone, or hands its argument on, is no step of the computation.
        if known and (fresh or title.endswith("_")):
            self._node(
                title, self.path[-1] if self.path else "", tuple(dict.fromkeys(known)), results
            )

    def _node(self, title: str, module: str, sources: tuple[int, ...], results: list[Any]) -> None:
        shape = ", ".join(str(list(t.shape)) for t in results[:2])
        shape += ", ..." if len(results) > 2 else ""
        self.nodes.append(Node(title, shape, module, sources))
        self.alive += results
        self.made_by.update({id(t): len(self.nodes) - 1 for t in results})


def _layers(nodes: list[Node]) -> list[list[int]]:
    """Place nodes by the longest way to them, and order each row by where its sources stand.

    This is the layering and the barycentre step of K. Sugiyama, S. Tagawa, M. Toda, "Methods for
    Visual Understanding of Hierarchical System Structures", 1981.
    """
    depth: list[int] = []
    for node in nodes:
        depth.append(max((depth[i] + 1 for i in node.sources), default=0))
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    place: dict[int, float] = {}
    for i, at in enumerate(depth):
        layers[at].append(i)
    for layer in layers:
        layer.sort(key=lambda i: _mean([place[s] for s in nodes[i].sources]))
        place.update({i: k - (len(layer) - 1) / 2 for k, i in enumerate(layer)})
    return layers


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _draw(ax: Any, nodes: list[Node], layers: list[list[int]]) -> None:
    place = {
        i: (k - (len(layer) - 1) / 2, -row)
        for row, layer in enumerate(layers)
        for k, i in enumerate(layer)
    }
    owners = list(dict.fromkeys(node.module.partition(".")[0] for node in nodes))
    for i, node in enumerate(nodes):
        x, y = place[i]
        owner = node.module.partition(".")[0]
        colour = f"C{owners.index(owner) % 10}" if owner else "0.5"
        ax.text(
            x,
            y,
            f"{node.title}\n{node.shape}",
            ha="center",
            va="center",
            fontsize=8,
            bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": colour},
            zorder=2,
        )
        for source in node.sources:
            far = place[source][1] - y > 1  # past other boxes: beside them
            ax.annotate(
                "",
                xy=(x, y + 0.28),
                xytext=(place[source][0], place[source][1] - 0.28),
                arrowprops={
                    "arrowstyle": "->",
                    "color": "0.4",
                    "connectionstyle": f"arc3,rad={0.35 if far else 0}",
                },
                zorder=1,
            )
    widest = max((len(layer) for layer in layers), default=1)
    ax.set_xlim(-widest / 2 - 0.2, widest / 2 + 0.2)
    ax.set_ylim(-len(layers) + 0.4, 0.6)
    ax.set_axis_off()
