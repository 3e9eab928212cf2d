"""`flex_attention` and its masks: the numbers are PyTorch's, and little is held at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as theirs

import tangrad
from tangrad.nn.attention import flex_attention as ours
from tangrad_fx.attention import flexible

MASKS = {
    "causal": lambda b, h, q, kv: q >= kv,
    "window": lambda b, h, q, kv: (q - kv).abs() <= 5,
    "heads": lambda b, h, q, kv: (q >= kv) | (h == 0),
    "nothing for some": lambda b, h, q, kv: (kv < 20) & (q % 7 != 0),
}
SCORES = {
    "relative": lambda s, b, h, q, kv: s + 0.1 * (q - kv),
    "soft cap": lambda s, b, h, q, kv: 5 * (s / 5).tanh(),
    "slopes": lambda s, b, h, q, kv: s - (kv - q).abs() * 2.0 ** (-h - 1),
}


@pytest.fixture
def operands() -> tuple[list[Any], list[Any]]:
    """Queries, keys and values of ours and of PyTorch's."""
    torch.manual_seed(0)
    made = [torch.randn(2, 4, n, 8) for n in (40, 50, 50)]
    return [tangrad.from_numpy(t.numpy()) for t in made], made


def same(got: Any, expected: Any) -> None:
    """Assert that two results are equal to rounding."""
    tangrad.testing.assert_close(got, tangrad.from_numpy(expected.numpy()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MASKS)
def test_masks_and_their_blocks_are_pytorchs(name: str) -> None:
    made = [
        lib.create_block_mask(MASKS[name], 2, 4, 40, 50, device="cpu", BLOCK_SIZE=16)
        for lib in (ours, theirs)
    ]
    for attribute in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_q_indices"):
        same(getattr(made[0], attribute), getattr(made[1], attribute))
    same(made[0].to_dense(), made[1].to_dense())
    assert str(made[0]) == str(made[1])
    assert made[0].shape == made[1].shape
    assert made[0].sparsity() == made[1].sparsity()


@pytest.mark.parametrize("mask", [None, *MASKS])
@pytest.mark.parametrize("score", [None, *SCORES])
@pytest.mark.parametrize("most", [2**22, 2000])
def test_results_are_pytorchs(
    operands: Any, monkeypatch: Any, mask: str | None, score: str | None, most: int
) -> None:
    monkeypatch.setattr(flexible, "MOST_AT_ONCE", most)
    monkeypatch.setattr(theirs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    results = []
    for lib, values in zip((ours, theirs), operands, strict=True):
        made = None
        if mask is not None:
            made = lib.create_block_mask(MASKS[mask], None, 4, 40, 50, device="cpu", BLOCK_SIZE=16)
        wanted = lib.AuxRequest(lse=True)
        function = None if score is None else SCORES[score]
        results.append(lib.flex_attention(*values, function, made, return_aux=wanted))
    same(results[0][0], results[1][0])
    same(results[0][1].lse, results[1][1].lse)


def test_groups_of_heads_share_keys(operands: Any) -> None:
    q, k, v = operands[0]
    shared = ours.flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True)
    repeated = (t[:, :2].repeat_interleave(2, dim=1) for t in (k, v))
    tangrad.testing.assert_close(shared, ours.flex_attention(q, *repeated))


def test_parts_have_the_derivatives_of_the_whole(operands: Any, monkeypatch: Any) -> None:
    slopes = tangrad.rand(4, requires_grad=True)

    def biased(s, b, h, q, kv):  # type: ignore[no-untyped-def]
        return s - slopes[h] * (q - kv).abs()

    found = []
    mask = ours.create_block_mask(MASKS["nothing for some"], None, None, 40, 50, BLOCK_SIZE=8)
    for most in (2**22, 2000):
        monkeypatch.setattr(flexible, "MOST_AT_ONCE", most)
        leaves = [t.clone().requires_grad_() for t in operands[0]]
        result = ours.flex_attention(*leaves, biased, mask)
        found.append(tangrad.autograd.grad(result.sin().sum(), [*leaves, slopes]))
    for whole, parts in zip(*found, strict=True):
        assert whole.isfinite().all()
        tangrad.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-5)


def test_queries_that_see_nothing_get_zeros(operands: Any) -> None:
    mask = ours.create_block_mask(MASKS["nothing for some"], None, None, 40, 50, BLOCK_SIZE=8)
    result, aux = ours.flex_attention(
        *operands[0], block_mask=mask, return_aux=ours.AuxRequest(lse=True, max_scores=True)
    )
    assert (result[:, :, ::7] == 0).all()
    assert (aux.lse[:, :, ::7] == -tangrad.inf).all()
    assert (aux.max_scores[:, :, 1] > -tangrad.inf).all()


def test_blocks_that_a_mask_does_not_list_are_not_seen(operands: Any) -> None:
    q, k, v = (t[:, :, :32] for t in operands[0])
    counts = tangrad.ones(1, 1, 2, dtype=tangrad.int32)
    first = ours.BlockMask.from_kv_blocks(
        counts, tangrad.zeros(1, 1, 2, 2, dtype=tangrad.int32), BLOCK_SIZE=16
    )
    expected = ours.flex_attention(q, k[:, :, :16], v[:, :, :16])
    tangrad.testing.assert_close(ours.flex_attention(q, k, v, block_mask=first), expected)


def test_a_mask_is_cut_to_shorter_lengths_and_to_heads() -> None:
    made = [
        lib.create_block_mask(MASKS["heads"], 1, 4, 64, 64, device="cpu", BLOCK_SIZE=16)
        for lib in (ours, theirs)
    ]
    for change in (lambda m: m[:, 1], lambda m: m._adjust(40, 30), lambda m: m[0, -1:]):
        changed = [change(m) for m in made]
        same(changed[0].to_dense(), changed[1].to_dense())
        assert changed[0].shape == changed[1].shape
    with pytest.raises(RuntimeError, match="sliced BlockMask"):
        ours.flex_attention(*(tangrad.ones(1, 4, 64, 8),) * 3, block_mask=made[0][:, :])


def test_masks_are_combined(operands: Any) -> None:
    both = ours.and_masks(MASKS["causal"], MASKS["window"])
    either = ours.or_masks(MASKS["causal"], MASKS["window"])
    masks = {f: ours.create_mask(f, None, None, 9, 9) for f in (both, either)}
    causal, window = (ours.create_mask(MASKS[n], None, None, 9, 9) for n in ("causal", "window"))
    assert masks[both].equal(causal & window)
    assert masks[either].equal(causal | window)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"key": (2, 2, 50, 8), "value": (2, 2, 50, 8)}, ValueError, "enable_gqa=True"),
        ({"key": (2, 4, 50, 7)}, ValueError, "same embedding dimension"),
        ({"value": (2, 4, 49, 8)}, ValueError, "one batch, heads and length"),
        ({"query": (4, 40, 8)}, NotImplementedError, "4 dimensions"),
        ({"key": (1, 4, 50, 8), "value": (1, 4, 50, 8)}, ValueError, "same batch size"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(change: Any, kind: Any, said: str) -> None:
    shapes = {"query": (2, 4, 40, 8), "key": (2, 4, 50, 8), "value": (2, 4, 50, 8)} | change
    with pytest.raises(kind, match=said):
        ours.flex_attention(**{name: tangrad.ones(shape) for name, shape in shapes.items()})


def test_a_mask_for_other_lengths_is_refused(operands: Any) -> None:
    mask = ours.create_block_mask(MASKS["causal"], None, None, 64, 64, BLOCK_SIZE=16)
    with pytest.raises(ValueError, match=r"q_len=40 and kv_len=50.*_adjust"):
        ours.flex_attention(*operands[0], block_mask=mask)
    with pytest.raises(AssertionError, match="4 or 5 positional"):
        ours.create_block_mask(lambda q, kv: q >= kv, None, None, 8, 8)
