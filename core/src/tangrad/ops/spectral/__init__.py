"""Fourier transforms and windows: `torch.fft`, `torch.signal`, `stft`."""
