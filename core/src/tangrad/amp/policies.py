"""Which op autocast runs in which dtype: PyTorch's lists, for hosts and for accelerators.

A host computes narrow products well and has few narrow kernels that lose accuracy; accelerators
have fast approximations of the transcendental functions too, so that more is kept in float32.
"""

from __future__ import annotations

from typing import Any

LOWER = "lower"
FLOAT32 = "float32"
WIDEST = "widest"
AS_IS = "as is"  # and so are the ops that it is made of

_PRODUCTS = """
    addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d
    conv_transpose3d convolution linalg_matmul linalg_multi_dot linalg_vecdot linear matmul mm
    prelu scaled_dot_product_attention
"""
_LOSSES = """
    binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy ctc_loss
    hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss
    multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss
    soft_margin_loss triplet_margin_loss
"""

HOST = {
    **dict.fromkeys(_PRODUCTS.split(), LOWER),
    **dict.fromkeys(_LOSSES.split(), FLOAT32),
    **dict.fromkeys(
        """
        adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy cdist cholesky
        cholesky_inverse cholesky_solve fractional_max_pool2d fractional_max_pool3d geqrf
        grid_sample inverse lu_solve max_pool3d max_unpool2d max_unpool3d nanquantile orgqr
        ormqr pinverse polar prod qr quantile stft svd trace triangular_solve view_as_complex
        fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_irfft
        fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn
        linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals
        linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq
        linalg_matrix_rank linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv
        linalg_tensorsolve
        """.split(),
        FLOAT32,
    ),
    **dict.fromkeys(("cat", "index_copy", "stack"), WIDEST),
    "bilinear": AS_IS,
}

ACCELERATOR = {
    **dict.fromkeys(_PRODUCTS.split(), LOWER),
    **dict.fromkeys(("addmv", "addr", "chain_matmul", "mv"), LOWER),
    **dict.fromkeys(_LOSSES.split(), FLOAT32),
    **dict.fromkeys(
        """
        acos asin cdist cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 group_norm
        layer_norm linalg_matrix_norm linalg_vector_norm log log10 log1p log2 log_softmax
        logsumexp norm pdist pow prod reciprocal renorm rsqrt sinh softmax softmin softplus sum
        tan
        """.split(),
        FLOAT32,
    ),
    **dict.fromkeys(
        """
        addcdiv addcmul atan2 bilinear cat cross dot grid_sample index_put linalg_cross
        scatter_add stack tensordot vdot
        """.split(),
        WIDEST,
    ),
}

# Refused under autocast on accelerators: its narrow gradient overflows.
UNSAFE_ON_ACCELERATORS = "binary_cross_entropy"


def policy_of(name: str, args: tuple[Any, ...], host: bool) -> str | None:
    """Return what autocast does with a call: LOWER, FLOAT32, WIDEST, AS_IS, or None for nothing.

    Args:
        name: the op. args: its arguments in the order of its schema.
        host: whether the device is the host.
    """
    if not host:
        return ACCELERATOR.get(name)
    if name == "pad":
        # PyTorch lists the ops behind the modes, and leaves the reflection of volumes out.
        mode, widths = args[2], args[1]
        listed = mode == "replicate" or (mode == "reflect" and len(widths) < 6)
        return FLOAT32 if listed else None
    return HOST.get(name)
