"""The example that reads digits has the losses on the stand-in GPU that it has on `cpu`."""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits.py"

# An epoch over 160 digits and both networks; the example itself takes all of them, thirty times.
PROGRAM = f"""
import importlib.util, sys
import tangrad
from tangrad.plugin import fallback_calls
spec = importlib.util.spec_from_file_location("digits_example", {str(EXAMPLE)!r})
digits = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = digits
spec.loader.exec_module(digits)

def outcomes(device):
    images, numbers = (t[:160] for t in digits.load_digits(device))
    training, held_back = digits.hold_back_a_fifth(images, numbers)
    found = []
    for title, build in digits.MODELS.items():
        tangrad.manual_seed(0)
        model = build().to(device)
        tangrad.manual_seed(1)  # shuffles on the host
        found.append(digits.train(title, model, training, held_back, 1))
    return found

for there, here in zip(outcomes("cuda"), outcomes("cpu"), strict=True):
    # Sums are taken in another order there.
    for a, b in zip(there.losses + there.held_back_losses, here.losses + here.held_back_losses):
        assert abs(a - b) <= 1e-5 * abs(b), (a, b)
    assert there.accuracy == here.accuracy and (there.predicted == here.predicted).all()
assert not fallback_calls(), fallback_calls()
"""


def test_digits_are_learned_with_the_losses_of_the_cpu(run):
    assert run(PROGRAM).count("steps") == 4
