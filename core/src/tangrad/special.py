"""Special functions: `torch.special`."""

from __future__ import annotations

from tangrad.ops.definition.shown import show

_TOP_LEVEL = (
    "digamma erf erfc erfinv exp2 expm1 i0 log1p log_softmax logit logsumexp polygamma round sinc"
    " softmax xlogy"
)
__getattr__, __dir__ = show(
    __name__,
    "special",
    {
        **{name: name for name in _TOP_LEVEL.split()},
        "expit": "sigmoid",
        "gammainc": "igamma",
        "gammaincc": "igammac",
        "gammaln": "lgamma",
        "multigammaln": "mvlgamma",
        "psi": "digamma",
    },
)
