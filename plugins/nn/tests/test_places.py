"""Programs import some names from the modules that PyTorch defines them in."""

import importlib

import pytest
import torch

import tangrad

PLACES = {
    "nn.modules.activation": "MultiheadAttention Softplus Mish GLU Threshold CELU ReLU",
    "nn.modules.loss": "KLDivLoss TripletMarginLoss SmoothL1Loss BCELoss _Loss _WeightedLoss",
    "nn.modules.rnn": "LSTMCell GRUCell RNNCell LSTM",
    "nn.modules.transformer": "_get_clones _get_activation_fn TransformerEncoderLayer",
    "nn.modules.utils": "_single _pair _triple _quadruple _ntuple",
    "nn.modules.batchnorm": "_BatchNorm BatchNorm2d",
    "nn.modules.conv": "_ConvNd Conv2d",
    "nn.common_types": "_size_1_t _size_2_t _size_any_t _ratio_2_t",
    "nn.attention": "SDPBackend sdpa_kernel",
    "functional": "einsum norm meshgrid stft split",
    "types": "Device Number Storage _size _dtype _device",
    "utils.dlpack": "to_dlpack from_dlpack",
    "utils.data._utils.collate": "default_collate",
    "utils.data._utils.worker": "get_worker_info",
}


@pytest.mark.parametrize("place", PLACES)
def test_names_stand_where_pytorch_defines_them(place):
    ours = tangrad
    for part in place.split("."):
        ours = getattr(ours, part, None) or importlib.import_module(f"{ours.__name__}.{part}")
    theirs = importlib.import_module(f"torch.{place}")
    for name in PLACES[place].split():
        assert hasattr(theirs, name)
        assert hasattr(ours, name), f"{place}.{name}"


def test_functions_are_those_of_the_top_level():
    assert tangrad.functional.einsum is tangrad.einsum
    with pytest.raises(AttributeError, match="no attribute 'relu'"):
        _ = tangrad.functional.relu


def test_a_prefix_is_taken_off_a_state():
    def program(t):
        consume = t.nn.modules.utils.consume_prefix_in_state_dict_if_present
        state = t.nn.DataParallel(t.nn.Sequential(t.nn.Linear(2, 1))).state_dict()
        state["modules"] = 1
        consume(state, "module.")
        return sorted(state), dict(state._metadata)

    assert program(tangrad) == program(torch)


def test_the_choice_of_an_attention_kernel_changes_no_result():
    backend = tangrad.nn.attention.SDPBackend.MATH
    assert str(backend) == "SDPBackend.MATH"
    x = tangrad.rand(1, 2, 3, 4)
    attend = tangrad.nn.functional.scaled_dot_product_attention
    expected = attend(x, x, x)
    for backends in (backend, [backend], []):
        with tangrad.nn.attention.sdpa_kernel(backends):
            assert attend(x, x, x).equal(expected)


def test_a_wrong_choice_of_an_attention_kernel_is_refused():
    for t in (torch, tangrad):
        with pytest.raises(AssertionError), t.nn.attention.sdpa_kernel("math"):
            pass
