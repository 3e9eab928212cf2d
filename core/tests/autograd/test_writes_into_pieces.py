"""Views of functions that return several: what may be written in place, and who refuses it."""

from __future__ import annotations

import pytest

import tangrad

PIECES = {
    "chunk": lambda x: x.chunk(2),
    "split": lambda x: x.split(2),
    "split into sizes": lambda x: x.split([1, 3]),
    "unbind": lambda x: x.unbind(0),
    "iteration": lambda x: tuple(x),
    "tensor_split": lambda x: x.tensor_split(2),
    "hsplit": lambda x: x.hsplit(2),
    "a view of a piece": lambda x: (x.chunk(2)[0][:1], x.chunk(2)[1]),
    "a piece of an expanded view": lambda x: x.expand(2, 4).chunk(2),
    "a piece of the real part": lambda x: x.to(dtype=x.dtype.to_complex()).real.chunk(2),
    "a slice": lambda x: (x[:2], x[2:]),
    "unsafe_chunk": lambda x: x.unsafe_chunk(2),
}
# The others make tensors of inference mode, where that is on.
RECORDED = {
    k: cut for k, cut in PIECES.items() if k not in ("a piece of the real part", "unsafe_chunk")
}
WRITES = {
    "the piece": lambda x, pieces: pieces[0].mul_(2),
    "another piece": lambda x, pieces: pieces[1].mul_(2),
    "the base": lambda x, pieces: x.mul_(2),
    "a part of the base": lambda x, pieces: x[3:].mul_(2),
    "the detached piece": lambda x, pieces: pieces[0].detach().mul_(2),
    "the data": lambda x, pieces: pieces[0].data.mul_(2),
}


@pytest.mark.parametrize("leaf", [False, True], ids=["result", "leaf"])
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "no_grad"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("cut", PIECES.values(), ids=PIECES)
def test_a_written_piece_has_pytorchs_gradient_or_its_refusal(agree, cut, write, recorded, leaf):
    def program(F):
        a = F.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
        x = a if leaf else a * 1
        pieces = cut(x)
        with F.set_grad_enabled(recorded):
            write(x, pieces)
        return F.autograd.grad((pieces[0] ** 2).sum(), a)

    agree(program, message=False)


@pytest.mark.parametrize("ask", ["grad_fn", "is_leaf"])
def test_a_piece_whose_base_was_written_has_no_history_to_tell_of(agree, ask):
    def program(F):
        x = F.ones(4, requires_grad=True) * 1
        piece = x.chunk(2)[0]
        with F.no_grad():
            x.mul_(2)
        return getattr(piece, ask)

    agree(program, message=False)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("cut", RECORDED.values(), ids=RECORDED)
def test_pieces_made_without_recording_are_written_where_pytorch_writes_them(
    agree, cut, mode, write
):
    def program(F):
        x = F.ones(4, requires_grad=True) * F.arange(4.0)
        with getattr(F, mode)():
            pieces = cut(x)
        write(x, pieces)
        return (pieces[0] * 2).requires_grad, x

    agree(program, message=False)


def test_a_view_of_inference_mode_says_so():
    x = tangrad.ones(4)
    with tangrad.inference_mode():
        view = x[:2]
    with pytest.raises(RuntimeError, match="created in inference mode and is being modified"):
        view.mul_(tangrad.ones(2, requires_grad=True))
