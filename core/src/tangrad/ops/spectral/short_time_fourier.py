"""Short-time Fourier transforms: a signal's spectrum window after window, and back."""

from __future__ import annotations

import warnings
from typing import Any

import tangrad
from tangrad import _C, ops
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.spectral.fourier import _fft_c2c, _fft_c2r, _fft_r2c, supported

_BY_ROOT, _BY_NUMBER = 1, 2
# The sum of squared windows below which nothing can be told of the signal.
_SMALLEST_ENVELOPE = 1e-11


def _warn_without_window(name: str, window: Any) -> None:
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied, which is known to "
            "cause spectral leakage. Other windows such as hann_window or hamming_window are "
            f"recommended; to have {name} keep the rectangular one without this warning, give "
            "window=ones(win_length).",
            UserWarning,
            stacklevel=3,
        )


def _require(condition: bool, name: str, what: str) -> None:
    if not condition:
        raise RuntimeError(f"{name}: {what}")


def _require_one_device(name: str, x: Any, window: Any) -> None:
    _require(
        window is None or window.device == x.device,
        name,
        f"input and window must be on the same device but got {x.device} and "
        f"{'none' if window is None else window.device}",
    )


def _centered(window: Any, win_length: int, n_fft: int) -> Any:
    """Fill a window up with zeros on both sides."""
    left = (n_fft - win_length) // 2
    if win_length == n_fft:
        return window
    return tangrad.constant_pad_nd(window, (left, n_fft - win_length - left), 0)


def _padded(signal: Any, n_fft: int, mode: str) -> Any:
    lead = (1,) * (3 - signal.ndim)
    half = n_fft // 2
    padded = ops.pad(signal.reshape((*lead, *signal.shape)), (half, half), mode)
    return padded.reshape((*signal.shape[:-1], padded.shape[-1]))


def _stft_samples(s: Any) -> list[Any]:
    if s.dtype not in ("float32", "float64", "complex64", "complex128"):
        return []
    real = {"return_complex": True}
    window = s.tensor(8, low=0.5, high=1)
    return [
        s(s.tensor(32), 8, window=window, **real),
        s(s.tensor(2, 20, strided=True), 6, 2, 4, s.tensor(4, low=0.5), **real),
        s(s.tensor(2, 20), 8, 3, window=window, center=False, normalized=True, **real),
        s(s.tensor(20), 8, 3, window=window, pad_mode="constant", onesided=False, **real),
        s(
            s.tensor(20),
            8,
            3,
            6,
            s.tensor(6, low=0.5),
            center=False,
            onesided=False,
            align_to_window=True,
            **real,
        ),
        s(s.tensor(20), 8, window=window, onesided=False, return_complex=False),
    ]


def _stft_errors(s: Any) -> list[Any]:
    window = s.tensor(4)
    some = {"window": window, "return_complex": True}
    return [
        (s(s.tensor(20), 4, window=window), RuntimeError, "return_complex"),
        (s(s.tensor(2, 2, 20), 4, **some, center=False), RuntimeError, "1D or 2D tensor"),
        (s(s.integers(0, 5, 20), 4, **some, center=False), RuntimeError, "floating point"),
        (s(s.tensor(3), 4, **some, center=False), RuntimeError, "expected 0 < n_fft"),
        (s(s.tensor(20), 4, 0, **some), RuntimeError, "hop_length"),
        (s(s.tensor(20), 4, 1, 5, **some), RuntimeError, "win_length"),
        (s(s.tensor(20), 5, 1, **some), RuntimeError, "1D window tensor"),
        (s(s.tensor(20), 4, **some, align_to_window=True), RuntimeError, "align_to_window"),
        (s(s.tensor(20, dtype="complex64"), 4, **some, onesided=True), RuntimeError, "onesided"),
    ]


@composite(samples=_stft_samples, errors=_stft_errors, oracle="stft")
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Transform overlapping pieces of a signal (batch?, length) by `fft`.

    Args:
        n_fft: number of points of each transform.
        hop_length: distance of the pieces. Default: n_fft // 4.
        win_length: length of the window, which is centered among n_fft points. Default: n_fft.
        window: what each piece is multiplied by; ones if None, with a warning.
        center: whether piece t is centered at t * hop_length, by padding both ends.
        pad_mode: how (see `nn.functional.pad`).
        normalized: divide by the root of n_fft.
        onesided: leave out what follows by symmetry. Default: for real input and window.
        return_complex: False gives real and imaginary parts as a last dimension of two.
        align_to_window: without centering, count pieces by the window instead of by n_fft.

    Returns:
        Complex tensor (batch?, frequencies, pieces).

    Raises:
        RuntimeError: an argument does not fit, or `return_complex` is missing for real input.
    """
    name = "stft"
    _require(
        not center or align_to_window is None,
        name,
        "align_to_window should only be set when center = false",
    )
    _warn_without_window(name, window)
    _require_one_device(name, input, window)
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    is_complex = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        if not is_complex:
            raise RuntimeError(f"{name} requires the return_complex parameter for real inputs")
        return_complex = True
    real = input.is_floating_point()
    _require(
        real or input.is_complex(),
        name,
        f"expected a tensor of floating point or complex values, got {input.dtype}",
    )
    _require(
        input.ndim in (1, 2), name, f"expected a 1D or 2D tensor, but got {tuple(input.shape)}"
    )
    _require(n_fft > 0, name, f"expected 0 < n_fft, but got n_fft={n_fft}")
    _require(hop > 0, name, f"expected hop_length > 0, but got hop_length={hop}")
    _require(
        0 < length <= n_fft,
        name,
        f"expected 0 < win_length <= n_fft={n_fft}, but got win_length={length}",
    )
    _require(
        window is None or tuple(window.shape) == (length,),
        name,
        f"expected a 1D window tensor of size equal to win_length={length}, but got window with "
        f"size {None if window is None else tuple(window.shape)}",
    )
    signal = _padded(input, n_fft, pad_mode) if center else input
    left = (n_fft - length) // 2
    if align_to_window:
        signal = tangrad.constant_pad_nd(signal, (left, n_fft - length - left), 0)
    _require(
        n_fft <= signal.shape[-1],
        name,
        f"expected 0 < n_fft <= {signal.shape[-1]} (the padded length), but got n_fft={n_fft}",
    )
    pieces = signal.unfold(-1, n_fft, hop)
    if window is not None:
        pieces = pieces * _centered(window, length, n_fft)
    elif length < n_fft:
        ones = tangrad.ones(length, dtype=input.dtype, device=input.device)
        pieces = pieces * _centered(ones, length, n_fft)
    pieces = supported(name, pieces)
    onesided = not is_complex if onesided is None else onesided
    scaling = _BY_ROOT if normalized else 0
    last = (pieces.ndim - 1,)
    if is_complex:
        _require(not onesided, name, "Cannot have onesided output if window or input is complex")
        found = _fft_c2c(pieces, last, scaling, True)
    else:
        found = _fft_r2c(pieces, last, scaling, onesided)
    found = found.transpose(-2, -1)
    return found if return_complex else tangrad.view_as_real(found)


def _istft_samples(s: Any) -> list[Any]:
    if not s.is_complex:
        return []
    part = "float64" if s.dtype == "complex128" else "float32"
    window = s.tensor(8, low=0.5, high=1, dtype=part)
    return [
        s(s.tensor(5, 6), 8, window=window),
        s(s.tensor(2, 5, 6, strided=True), 8, 3, window=window, center=False),
        s(s.tensor(8, 6), 8, 3, window=window, onesided=False, normalized=True),
        s(s.tensor(5, 6), 8, 2, 6, s.tensor(6, low=0.5, high=1, dtype=part), length=9),
        s(s.tensor(8, 6), 8, 3, window=window, onesided=False, return_complex=True),
        s(s.tensor(5, 4), 8, 2, window=window, length=20),
    ]


def _istft_errors(s: Any) -> list[Any]:
    def spectrum(*shape: int) -> Any:
        return s.tensor(*shape, dtype="complex64")

    window = {"window": s.tensor(4, low=0.5, high=1)}
    return [
        (s(s.tensor(3, 5), 4, **window), RuntimeError, "complex"),
        (s(spectrum(3, 0), 4, **window), RuntimeError, "empty"),
        (s(spectrum(3), 4, **window), RuntimeError, "2 or 3 dimensions|dimensions"),
        (s(spectrum(4, 5), 4, **window, onesided=True), RuntimeError, "n_fft / 2 \\+ 1"),
        (s(spectrum(3, 5), 4, **window, onesided=False), RuntimeError, "match n_fft"),
        (s(spectrum(3, 5), 4, 5, **window), RuntimeError, "hop_length"),
        (s(spectrum(3, 5), 4, 1, 5, **window), RuntimeError, "win_length"),
        (s(spectrum(3, 5), 4, window=s.tensor(3)), RuntimeError, "window"),
        (s(spectrum(3, 5), 4, window=s.values([0, 0, 0, 0])), RuntimeError, "overlap add"),
        (s(spectrum(3, 5), 4, **window, return_complex=True), RuntimeError, "onesided"),
    ]


@composite(samples=_istft_samples, errors=_istft_errors, oracle="istft")
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Find the signal whose `stft` is nearest to the given one, by least squares.

    The pieces are transformed back, multiplied by the window, added up and divided by the sum of
    the squared windows (Griffin and Lim, "Signal estimation from modified short-time Fourier
    transform", 1984).

    Args:
        input: complex tensor (batch?, frequencies, pieces).
        length: of the signal. Default: all that the pieces cover, half of n_fft less at both ends
            with `center`.
        return_complex: whether the signal is complex; a real one takes half of the frequencies.
        n_fft, hop_length, win_length, window, center, normalized, onesided: as for `stft`.

    Raises:
        RuntimeError: an argument does not fit, or the windows leave a place of the signal out.
    """
    name = "istft"
    _warn_without_window(name, window)
    _require_one_device(name, input, window)
    hop = n_fft // 4 if hop_length is None else hop_length
    span = n_fft if win_length is None else win_length
    _require(
        input.is_complex(),
        name,
        "requires a complex-valued input tensor, the output of stft with return_complex=True, "
        f"got {input.dtype}",
    )
    _require(input.numel() > 0, name, "input tensor cannot be empty")
    _require(
        input.ndim in (2, 3),
        name,
        f"expected a tensor with 2 or 3 dimensions, but got {tuple(input.shape)}",
    )
    frequencies, count = input.shape[-2], input.shape[-1]
    onesided = frequencies != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if onesided else n_fft
    _require(
        frequencies == wanted,
        name,
        "expected the frequency dimension (the last but one) of the input to match "
        f"{'n_fft / 2 + 1' if onesided else 'n_fft'} when onesided={onesided}, but got "
        f"{frequencies} and n_fft={n_fft}",
    )
    _require(
        0 < span <= n_fft,
        name,
        f"expected 0 < win_length <= n_fft={n_fft}, but got win_length={span}",
    )
    _require(
        0 < hop <= span,
        name,
        f"expected 0 < hop_length <= win_length={span}, but got hop_length={hop}",
    )
    _require(
        window is None or tuple(window.shape) == (span,),
        name,
        f"Invalid window shape: it has to be 1D and of length win_length={span}, got "
        f"{None if window is None else tuple(window.shape)}",
    )
    if window is None:
        window = tangrad.ones(span, dtype=input.dtype.to_real(), device=input.device)
    window = _centered(window, span, n_fft)
    pieces = input.transpose(-2, -1)
    last, scaling = (pieces.ndim - 1,), _BY_ROOT if normalized else _BY_NUMBER
    if return_complex:
        _require(not onesided, name, "Cannot have onesided output if window or input is complex")
        pieces = _fft_c2c(pieces, last, scaling, False)
    else:
        _require(
            not window.is_complex(),
            name,
            "Complex windows are incompatible with return_complex=False",
        )
        pieces = _fft_c2r(pieces[..., : n_fft // 2 + 1], last, scaling, n_fft)
    return _overlap_add(pieces * window, window, hop, count, center, length)


def _overlap_add(
    pieces: Any, window: Any, hop: int, count: int, center: bool, length: int | None
) -> Any:
    """Add pieces (batch?, count, n_fft) up at distances of hop; divide by the squared windows."""
    n_fft = pieces.shape[-1]
    covered = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    if length is not None:
        end = start + length
    else:
        end = covered - n_fft // 2 if center else covered
    lead = tuple(pieces.shape[:-2])
    signal = ops.unfold_backward(pieces, (*lead, covered), len(lead), n_fft, hop)
    squares = (window * window).expand((count, n_fft))
    envelope = ops.unfold_backward(squares, (covered,), 0, n_fft, hop)
    signal, envelope = signal[..., start:end], envelope[start:end]
    _require_covered(envelope)
    signal = signal / envelope
    if end > covered:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being "
            "padded with zeros in the tail. Please check your center and hop_length settings.",
            UserWarning,
            stacklevel=4,
        )
        signal = tangrad.constant_pad_nd(signal, (0, end - covered), 0)
    return signal


def _require_covered(envelope: Any) -> None:
    if envelope.is_meta or not envelope.numel() or _C.get_intercept() is not None:
        return  # values that cannot be asked for
    smallest = envelope.detach().abs().min().item()
    if smallest <= _SMALLEST_ENVELOPE:
        raise RuntimeError(
            f"istft: window overlap add min: {smallest}: the windows leave places of the signal "
            "out; choose a smaller hop_length or another window"
        )
