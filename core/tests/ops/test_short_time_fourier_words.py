"""Words of transforms that programs match."""

import pytest

import tangrad


def test_words_of_short_time_transforms_are_those_that_programs_match():
    x = tangrad.ones(64)
    with pytest.warns(UserWarning, match="^A window was not provided"):
        found = tangrad.stft(x, 16, return_complex=True)
    with pytest.warns(UserWarning, match="^The length of signal is shorter than the length"):
        tangrad.istft(found, 16, window=tangrad.ones(16), length=80)
    with pytest.raises(RuntimeError, match="stft requires the return_complex parameter"):
        tangrad.stft(x, 16, window=tangrad.ones(16))
    with pytest.raises(RuntimeError, match="rfftn expects a real-valued input tensor"):
        tangrad.fft.rfftn(x.to(tangrad.complex64))
