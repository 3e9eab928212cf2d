"""Level 5: one seed gives the same numbers as on every device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tangrad
from tangrad_testing.levels.check import (
    Check,
    Device,
    NotApplicable,
    collected,
    expect,
    expect_close,
)

check, PLAIN = collected(5)

SIZES = (1, 63, 65, 257, 4097, 65537)
# Bits are equal, but for the functions in the transform to normal numbers (2 units there).
DRAWS: dict[str, tuple[Callable[[int, Any], Any], bool]] = {
    "rand": (lambda n, where: tangrad.rand(n, device=where), True),
    "rand of float64": (lambda n, w: tangrad.rand(n, device=w, dtype=tangrad.float64), True),
    "randint": (lambda n, where: tangrad.randint(-50, 1000, (n,), device=where), True),
    "randperm": (lambda n, where: tangrad.randperm(min(n, 5000), device=where), True),
    "randn": (lambda n, where: tangrad.randn(n, device=where), False),
    "uniform_": (lambda n, where: tangrad.empty(n, device=where).uniform_(-2, 5), False),
    "bernoulli_": (lambda n, where: tangrad.empty(n, device=where).bernoulli_(0.3), True),
    "exponential_": (lambda n, where: tangrad.empty(n, device=where).exponential_(2.0), False),
    "dropout": (lambda n, w: tangrad.nn.functional.dropout(tangrad.ones(n, device=w), 0.4), False),
}


def require_memory(device: Device) -> None:
    """Refuse devices whose tensors have no values.

    Raises:
        NotApplicable: the device has none.
    """
    if device.driver.meta:
        raise NotApplicable("its tensors have no memory")


@check
def a_seed_gives_the_same_numbers_everywhere(device: Device) -> None:
    """After manual_seed every draw is that of the reference device, of any size."""
    require_memory(device)
    for name, (draw, exact) in DRAWS.items():
        for size in SIZES:
            found = []
            for where in (device.name, "reference"):
                tangrad.manual_seed(1234)
                draw(3, where)
                found.append(draw(size, where).cpu())
            case = f"{name}, {size} elements, after seed 1234"
            if exact:
                expect(case, found[0].tolist(), found[1].tolist())
            else:
                expect_close(case, [found[0]], [found[1]], 2)


@check
def draws_go_on(device: Device) -> None:
    """Two draws differ; the same seed repeats both."""
    require_memory(device)

    def two() -> list[list[float]]:
        tangrad.manual_seed(7)
        return [tangrad.rand(65, device=device.name).cpu().tolist() for _ in range(2)]

    first, again = two(), two()
    expect("two draws are equal", first[0] == first[1], False)
    expect("two draws after the same seed", again, first)


@check
def generators_keep_their_place(device: Device) -> None:
    """A generator of the device draws by its own seed, and its state brings it back."""
    require_memory(device)
    generator = tangrad.Generator(device=device.name).manual_seed(99)
    expect("device of the generator", generator.device.type, device.name)
    tangrad.rand(10, device=device.name, generator=generator)
    state = generator.get_state()
    first = tangrad.randn(257, device=device.name, generator=generator).cpu().tolist()
    tangrad.manual_seed(5)
    generator.set_state(state)
    again = tangrad.randn(257, device=device.name, generator=generator).cpu().tolist()
    expect("numbers after the state was set back", again, first)


@check
def drawn_numbers_fill_views(device: Device) -> None:
    """Numbers drawn into a view are those drawn into a new tensor; nothing else is written."""
    require_memory(device)
    wide = tangrad.zeros(65, 4, device=device.name)
    tangrad.manual_seed(3)
    wide[:, 1].uniform_()
    tangrad.manual_seed(3)
    plain = tangrad.empty(65, device=device.name).uniform_()
    expect("numbers drawn into a column", wide[:, 1].cpu().tolist(), plain.cpu().tolist())
    expect("the columns beside it", float(wide[:, [0, 2, 3]].cpu().abs().sum()), 0.0)


def checks(device: Device) -> Iterator[Check]:
    """Yield the checks of this level."""
    yield from PLAIN
