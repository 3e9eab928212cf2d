"""Weights divided by their largest singular value, before each forward (an older form)."""

from __future__ import annotations

from typing import Any, TypeVar

import tangrad
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter, UninitializedParameter

__all__ = [
    "SpectralNorm",
    "SpectralNormLoadStateDictPreHook",
    "SpectralNormStateDictHook",
    "remove_spectral_norm",
    "spectral_norm",
]

M = TypeVar("M", bound=Module)


def output_dim(module: Module, dim: int | None) -> int:
    """Return the dimension of a weight that counts outputs, unless one is given."""
    if dim is not None:
        return dim
    transposed = (
        tangrad.nn.ConvTranspose1d,
        tangrad.nn.ConvTranspose2d,
        tangrad.nn.ConvTranspose3d,
    )
    return 1 if isinstance(module, transposed) else 0


def rows_of(weight: Any, dim: int) -> Any:
    """Return a weight as a matrix whose rows are along one dimension."""
    return (weight if dim == 0 else weight.movedim(dim, 0)).flatten(1)


class SpectralNorm:
    """The hook of `spectral_norm`.

    Args:
        name: name of the weight.
        n_power_iterations: steps of the power method per forward in training.
        dim: the dimension that counts outputs.
        eps: added to norms that are divided by.

    Raises:
        ValueError: there is no step.
    """

    # 1: the estimates of both singular vectors are kept, not only of the left one.
    _version: int = 1
    name: str
    dim: int
    n_power_iterations: int
    eps: float

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        """Remember what to compute."""
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.eps = name, dim, eps
        self.n_power_iterations = n_power_iterations

    def reshape_weight_to_matrix(self, weight: Any) -> Any:
        """Return the weight as a matrix with one row per output."""
        return rows_of(weight, self.dim)

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Any:
        """Return the weight divided by the estimate, improved first if asked for."""
        weight = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with tangrad.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.mv(v), dim=0, eps=self.eps))
                # The buffers change at the next forward, maybe before this one's backward.
                u, v = u.clone(), v.clone()
        return weight / u.dot(matrix.mv(v))

    def remove(self, module: Any) -> None:
        """Make the weight a plain parameter again."""
        with tangrad.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        """Compute the weight, before the forward of the module."""
        weight = self.compute_weight(module, do_power_iteration=module.training)
        setattr(module, self.name, weight)

    def _right_vector(self, matrix: Any, u: Any, sigma: Any) -> Any:
        """Return the v for which u @ matrix @ v is sigma."""
        v = (matrix.t().mm(matrix).pinverse() @ (matrix.t() @ u.unsqueeze(1))).squeeze(1)
        return v * (sigma / u.dot(matrix.mv(v)))

    @staticmethod
    def apply(
        module: Any, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        """Divide a weight by its largest singular value before each forward.

        Raises:
            RuntimeError: this has been done already.
            ValueError: the weight is None or has no shape yet.
        """
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two spectral_norm hooks on the same parameter {name}"
                )
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if isinstance(weight, UninitializedParameter):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. "
                "Make sure to run the dummy forward before applying spectral normalization"
            )
        with tangrad.no_grad():
            u, v = (
                F.normalize(weight.new_empty(size).normal_(0, 1), dim=0, eps=eps)
                for size in made.reshape_weight_to_matrix(weight).shape
            )
        delattr(module, name)
        module.register_parameter(f"{name}_orig", weight)
        # No parameter, but what the attribute is until the first forward.
        setattr(module, name, weight.data)
        module.register_buffer(f"{name}_u", u)
        module.register_buffer(f"{name}_v", v)
        module.register_forward_pre_hook(made)
        module._register_state_dict_hook(SpectralNormStateDictHook(made))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(made))
        return made


class SpectralNormLoadStateDictPreHook:
    """Adds to a state without version what it lacks.

    Args:
        fn: the hook of the module that is loaded.
    """

    def __init__(self, fn: SpectralNorm) -> None:
        """Remember the hook."""
        self.fn = fn

    def __call__(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Compute the right singular vector from the weight and the left one."""
        versions = local_metadata.get("spectral_norm", {})
        version = versions.get(f"{self.fn.name}.version")
        if version is not None and version >= 1:
            return
        key = prefix + self.fn.name
        complete = all(key + suffix in state_dict for suffix in ("_orig", "_u", "_v"))
        if version is None and complete and key not in state_dict:
            return  # of the present version, but stripped of its metadata
        missing = [key + s for s in ("_orig", "", "_u") if key + s not in state_dict]
        if missing:
            if strict:
                missing_keys.extend(missing)
            return
        with tangrad.no_grad():
            original = state_dict[f"{key}_orig"]
            sigma = (original / state_dict.pop(key)).mean()
            matrix = self.fn.reshape_weight_to_matrix(original)
            state_dict[f"{key}_v"] = self.fn._right_vector(matrix, state_dict[f"{key}_u"], sigma)


class SpectralNormStateDictHook:
    """Notes the version in the metadata of a state.

    Args:
        fn: the hook of the module that is saved.
    """

    def __init__(self, fn: SpectralNorm) -> None:
        """Remember the hook."""
        self.fn = fn

    def __call__(
        self, module: Any, state_dict: Any, prefix: str, local_metadata: dict[str, Any]
    ) -> None:
        """Note the version.

        Raises:
            RuntimeError: there is one.
        """
        versions = local_metadata.setdefault("spectral_norm", {})
        key = f"{self.fn.name}.version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divide a weight by its largest singular value (Miyato et al. 2018, arXiv:1802.05957).

    The value is estimated by the power method, one step or more per forward in training.
    `nn.utils.parametrizations.spectral_norm` is the newer form.

    Args:
        module: the module.
        name: name of the weight; its parameter is then `name_orig`.
        n_power_iterations: steps per forward.
        eps: added to norms that are divided by.
        dim: the dimension that counts outputs: 0, or 1 for transposed convolutions.

    Returns:
        The module.

    Raises:
        RuntimeError: this has been done already.
        ValueError: the weight is None or has no shape yet, or there is no step.
    """
    SpectralNorm.apply(module, name, n_power_iterations, output_dim(module, dim), eps)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Make a weight that `spectral_norm` divides a plain parameter again.

    Raises:
        ValueError: it is not divided.
    """
    found: Any = None
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            found = hook
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    if found is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for key, hook in list(hooks.items()):
            if getattr(hook, "fn", None) is found:
                del hooks[key]
    return module
