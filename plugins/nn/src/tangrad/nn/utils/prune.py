"""Setting entries of weights to zero, and keeping them there."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import tangrad
from tangrad.nn.modules.module import Module
from tangrad.nn.utils.convert_parameters import parameters_to_vector

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]

M = TypeVar("M", bound=Module)

# Untyped, because to a type checker these are no numbers that can be compared.
_REAL: Any = numbers.Real
_WHOLE: Any = numbers.Integral


class BasePruningMethod(ABC):
    """A way to choose the entries of a tensor that become zero; a hook before forward.

    A subclass defines `compute_mask`, and `PRUNING_TYPE`: ``"unstructured"`` if it chooses among
    entries, ``"structured"`` among slices along its attribute `dim`, ``"global"`` by itself.
    """

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Any, inputs: Any) -> None:
        """Compute the pruned tensor, before the forward of the module."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return a mask of what stays: 1, or 0 where it is pruned.

        Args:
            t: scores of the entries, mostly the tensor itself.
            default_mask: mask of what has been pruned before, to be respected.
        """

    def apply_mask(self, module: Any) -> Any:
        """Return the original tensor times the mask."""
        mask = getattr(module, f"{self._tensor_name}_mask")
        original = getattr(module, f"{self._tensor_name}_orig")
        return mask.to(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prune a tensor of a module, now and before each forward.

        Args:
            module: the module.
            name: name of the parameter; it moves to `name_orig`, the mask is buffer `name_mask`.
            args, kwargs: of the class.
            importance_scores: scores instead of the tensor itself, of its shape.

        Returns:
            The hook: an object of this class, or the container of it and the earlier ones.

        Raises:
            AssertionError: shapes differ, or several hooks prune this tensor.
        """
        method = _registered(cls(*args, **kwargs), module, name)
        original = getattr(module, name)
        _check_scores(importance_scores, original, f"parameter {name} of {module}")
        scores = original if importance_scores is None else importance_scores
        first = not isinstance(method, PruningContainer)
        if first:
            # The hook's products are assigned to the attribute, which must be no parameter then.
            module.register_parameter(f"{name}_orig", original)
            del module._parameters[name]
            before = tangrad.ones_like(original)
        else:
            mask = getattr(module, f"{name}_mask")
            before = mask.detach().clone(memory_format=tangrad.contiguous_format)
        try:
            mask = method.compute_mask(scores, default_mask=before)
            module.register_buffer(f"{name}_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:
                module.register_parameter(name, module._parameters.pop(f"{name}_orig"))
            raise
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """Return a tensor with its pruned entries zero.

        Args:
            t: the tensor.
            default_mask: mask of what has been pruned before.
            importance_scores: scores instead of the tensor itself, of its shape.

        Raises:
            AssertionError: the scores have another shape.
        """
        _check_scores(importance_scores, t, "tensor t")
        scores = t if importance_scores is None else importance_scores
        before = tangrad.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=before)

    def remove(self, module: Any) -> None:
        """Make the pruned tensor the parameter; the hook itself stays (see `prune.remove`)."""
        name = self._tensor_name
        pruned = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(f"{name}_orig")
        original.data = pruned.data
        del module._buffers[f"{name}_mask"]
        setattr(module, name, original)


def _check_scores(scores: Any, tensor: Any, what: str) -> None:
    if scores is not None and scores.shape != tensor.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {what}, "
            f"got {scores.shape} vs {tensor.shape}"
        )


def _hooks_on(module: Any, name: str) -> list[int]:
    """Return the keys of the hooks of a module that prune one of its tensors."""
    return [
        key
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
    ]


def _registered(method: BasePruningMethod, module: Any, name: str) -> BasePruningMethod:
    """Return the hook to use: the method, or one for it and those that it comes after."""
    method._tensor_name = name
    keys = _hooks_on(module, name)
    if len(keys) > 1:
        raise AssertionError(
            f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. "
            "Use a PruningContainer."
        )
    if not keys:
        return method
    old = module._forward_pre_hooks.pop(keys[0])
    container = old if isinstance(old, PruningContainer) else PruningContainer(old)
    container.add_pruning_method(method)
    return container


class PruningContainer(BasePruningMethod):
    """Methods that prune one tensor one after the other.

    Args:
        args: the methods, the earliest first; all of one tensor.
    """

    def __init__(self, *args: Any) -> None:
        """Add the methods."""
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method that prunes further.

        Raises:
            TypeError: it is no method.
            ValueError: it is for another tensor.
        """
        if method is not None:
            if not isinstance(method, BasePruningMethod):
                raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
            if self._tensor_name != method._tensor_name:
                raise ValueError(
                    "Can only add pruning methods acting on the parameter named "
                    f"'{self._tensor_name}' to PruningContainer {self}. "
                    f"Found '{method._tensor_name}'"
                )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask of the latest method, applied to what is left of the earlier ones.

        Raises:
            ValueError: its `PRUNING_TYPE` is unknown.
            AttributeError: it is structured and has no `dim`.
            IndexError: the tensor has no such dimension.
        """
        method = self._pruning_methods[-1]
        left = _left(method, t, default_mask)
        mask = default_mask.to(t.dtype)
        part = method.compute_mask(t[left], default_mask=default_mask[left])
        mask[left] = part.to(mask.dtype)
        return mask


def _left(method: Any, t: Any, mask: Any) -> Any:
    """Return the index of what a method may choose from."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    everything = [slice(None)] * t.dim()
    if method.PRUNING_TYPE == "global":
        return tuple(everything)
    if method.PRUNING_TYPE != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    if not hasattr(method, "dim"):
        raise AttributeError(
            'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
        )
    dim = method.dim + t.dim() if method.dim < 0 else method.dim
    if dim < 0:
        raise IndexError(f"Index is out of bounds for tensor with dimensions {t.dim()}")
    kept = mask.sum(dim=[d for d in range(t.dim()) if d != dim]) != 0
    return (*everything[:dim], kept, *everything[dim + 1 :])


class Identity(BasePruningMethod):
    """Prunes nothing: for a tensor that is to have a mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask there is."""
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        """Give a tensor of a module a mask of ones."""
        return super().apply(module, name)


class _Unstructured(BasePruningMethod):
    """Prunes the entries of the lowest scores.

    Args:
        amount: how many, or which part of all if it is no integer.
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        """Check the amount."""
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _scores(self, t: Any) -> Any:
        raise NotImplementedError

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask there is, zero also at the entries chosen.

        Raises:
            ValueError: there are fewer entries than are to be pruned.
        """
        count = _compute_nparams_toprune(self.amount, t.numel())
        _validate_pruning_amount(count, t.numel())
        mask = default_mask.clone(memory_format=tangrad.contiguous_format)
        if count:
            lowest = tangrad.topk(self._scores(t).reshape(-1), k=count, largest=False)
            mask.view(-1)[lowest.indices] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Prunes entries at random.

    Args:
        amount: how many, or which part of all if it is no integer.
    """

    def _scores(self, t: Any) -> Any:
        # The largest numbers choose, as in PyTorch, for engines that make the same numbers.
        return -tangrad.rand_like(t)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> Any:  # type: ignore[override]
        """Prune a tensor of a module; see `random_unstructured`."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Unstructured):
    """Prunes the entries of the smallest absolute value.

    Args:
        amount: how many, or which part of all if it is no integer.
    """

    def _scores(self, t: Any) -> Any:
        return t.abs()

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, importance_scores: Any = None
    ) -> Any:
        """Prune a tensor of a module; see `l1_unstructured`."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(BasePruningMethod):
    """Prunes the slices of the lowest scores.

    Args:
        amount: how many, or which part of all if it is no integer.
        dim: dimension along which the slices lie.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        """Check the amount."""
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.dim = dim

    def _scores(self, t: Any) -> Any:
        raise NotImplementedError

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask there is, zero also at the slices chosen.

        Raises:
            ValueError: the tensor is a vector, or has fewer slices than are to be pruned.
            IndexError: the tensor has no such dimension.
        """
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        slices = t.shape[self.dim]
        count = _compute_nparams_toprune(self.amount, slices)
        _validate_pruning_amount(count, slices)
        if not count:
            return default_mask
        highest = tangrad.topk(self._scores(t), k=slices - count, largest=True)
        mask = tangrad.zeros_like(t).index_fill(self.dim, highest.indices, 1)
        return mask * default_mask.to(mask.dtype)


class RandomStructured(_Structured):
    """Prunes slices at random.

    Args:
        amount: how many, or which part of all if it is no integer.
        dim: dimension along which the slices lie.
    """

    def _scores(self, t: Any) -> Any:
        return tangrad.rand(t.shape[self.dim], device=t.device)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, dim: int = -1
    ) -> Any:
        """Prune a tensor of a module; see `random_structured`."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Structured):
    """Prunes the slices of the smallest norm.

    Args:
        amount: how many, or which part of all if it is no integer.
        n: the norm, as of `norm`.
        dim: dimension along which the slices lie.
    """

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        """Check the amount."""
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Any) -> Any:
        return _compute_norm(t, self.n, self.dim)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
    ) -> Any:
        """Prune a tensor of a module; see `ln_structured`."""
        return super().apply(
            module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
        )


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask.

    Args:
        mask: of the tensor's shape.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        """Remember the mask."""
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the product of the mask there is and the given one.

        Raises:
            AssertionError: shapes differ.
        """
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Any) -> Any:  # type: ignore[override]
        """Prune a tensor of a module; see `custom_from_mask`."""
        return super().apply(module, name, mask=mask)


def identity(module: M, name: str) -> M:
    """Give a tensor of a module a mask of ones.

    As all functions here: the parameter moves to `name_orig`, the mask is buffer `name_mask`, and
    the attribute is their product, computed before each forward.
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: Any) -> M:
    """Prune entries of a tensor of a module at random.

    Args:
        module: the module.
        name: name of the parameter.
        amount: how many, or which part of those left if it is no integer.
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: M, name: str, amount: Any, importance_scores: Any = None) -> M:
    """Prune the entries of a tensor of a module that have the smallest absolute value.

    Args:
        module: the module.
        name: name of the parameter.
        amount: how many, or which part of those left if it is no integer.
        importance_scores: compare these instead.
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: Any, dim: int) -> M:
    """Prune slices of a tensor of a module at random.

    Args:
        module: the module.
        name: name of the parameter.
        amount: how many, or which part of those left if it is no integer.
        dim: dimension along which the slices lie.
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: M, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
) -> M:
    """Prune the slices of a tensor of a module that have the smallest norm.

    Args:
        module: the module.
        name: name of the parameter.
        amount: how many, or which part of those left if it is no integer.
        n: the norm, as of `norm`.
        dim: dimension along which the slices lie.
        importance_scores: compare the norms of these instead.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune entries of several tensors, compared as if they were one.

    Args:
        parameters: pairs (module, name).
        pruning_method: class of the method.
        importance_scores: {(module, name): scores}, where the tensors themselves are not to be
            compared.
        kwargs: of the class.

    Raises:
        TypeError: arguments are of other kinds, or the method is not unstructured.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs = list(parameters)
    chosen = {} if importance_scores is None else importance_scores
    if not isinstance(chosen, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    tensors = [getattr(module, name) for module, name in pairs]
    scores = [chosen.get(pair, tensor) for pair, tensor in zip(pairs, tensors, strict=True)]
    masks = [
        getattr(module, f"{name}_mask", tangrad.ones_like(tensor))
        for (module, name), tensor in zip(pairs, tensors, strict=True)
    ]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        )
    method._tensor_name = "all of them"
    mask = PruningContainer(method).compute_mask(
        parameters_to_vector(scores), parameters_to_vector(masks)
    )
    pieces = mask.split([tensor.numel() for tensor in tensors])
    for (module, name), tensor, piece in zip(pairs, tensors, pieces, strict=True):
        custom_from_mask(module, name, mask=piece.view_as(tensor))


def custom_from_mask(module: M, name: str, mask: Any) -> M:
    """Prune a tensor of a module by a given mask.

    Args:
        module: the module.
        name: name of the parameter.
        mask: of the tensor's shape; what has been pruned before stays so.
    """
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: M, name: str) -> M:
    """Make the pruned tensor the parameter again, its zeros being values like others.

    Raises:
        ValueError: it is not pruned.
    """
    for key in _hooks_on(module, name)[:1]:
        hook: Any = module._forward_pre_hooks.pop(key)
        hook.remove(module)
        return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Module) -> bool:
    """Say whether a tensor of a module, or of one below it, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for submodule in module.modules()
        for hook in submodule._forward_pre_hooks.values()
    )


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, _REAL):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (not isinstance(amount, _WHOLE) and amount > 1):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, _WHOLE) and amount > tensor_size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to "
            f"prune={tensor_size}"
        )


def _validate_structured_pruning(t: Any) -> None:
    if t.dim() <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. "
            f"Found tensor of shape {t.shape} with {t.dim()} dims"
        )


def _validate_pruning_dim(t: Any, dim: int) -> None:
    if not -t.dim() <= dim < t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> Any:
    return amount if isinstance(amount, _WHOLE) else round(amount * tensor_size)


def _compute_norm(t: Any, n: Any, dim: int) -> Any:
    """Return the norms of the slices along a dimension."""
    return tangrad.norm(t, p=n, dim=[d for d in range(t.dim()) if d != dim % t.dim()])
