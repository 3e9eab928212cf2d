"""Further programs of the script language, loaded once for each side, as `script_cases` is."""

# ruff: noqa: UP006, UP007, UP031, UP035, UP045, C408
import dataclasses
import enum
from typing import Dict, List, Optional, Tuple, Union

import scripted_side as torch
from scripted_side import nn

CASES = []
MODULES = []


def case(*args):
    """Add a function with the arguments of its calls."""

    def add(function):
        CASES.append((function, args))
        return function

    return add


def module(*args):
    """Add a class of modules with the arguments of its calls."""

    def add(cls):
        MODULES.append((cls, args))
        return cls

    return add


def t(*values):
    return torch.tensor(values)


@case(([1, 2, 3, 4], t([1.0, 2.0], [3.0, 4.0])), (range(3), t([1.0, 2.0], [3.0, 4.0])))
def slices(xs: List[int], x):
    rest = slice(1, None)
    return xs[slice(2)], xs[rest], x[slice(None, 1), 0], (1, "a", 2.0)[slice(1, 3)], x[..., 0]


@case((["a", "b"], [1, 2]))
def dicts_of_pairs(names: List[str], numbers: List[int]):
    made = dict(zip(names, numbers))  # noqa: B905
    more = dict([("a", 1), ("b", 2)], c=3)
    empty: Dict[int, float] = dict()
    empty[3] = 1.5
    return made, more, empty, dict({"x": 1}, y=2), dict(enumerate(names))


@case((None, 1), (None, 5), (3, 5))
def given_where_it_was_none(o: Optional[int], n: int):
    if o is None:  # noqa: SIM102
        if n > 2:
            o = n
    best: Optional[int] = None
    for k in range(n):
        if best is None or k > best:
            best = k
    return o, best


@case((t(7, 2),), (t(7.5, 2.0),))
def numbers_of_tensors(x):
    a, b = x[0].item(), x[1].item()
    return a + b, a - b, a * b, a / b, a % b, a // b


@case(([], {}), ([1], {"a": 2}))
def truth(xs: List[int], entries: Dict[str, int]):
    found = 0
    if xs:
        found += 1
    if entries and not found:
        found += 2
    while xs:
        found += xs.pop()
    return found


@case((t([1.0, 5.0], [7.0, 2.0]),))
def fields(x):
    highest = x.max(dim=1)
    return highest.values, highest.indices, torch.sort(x, dim=0).values


@case(([1, 8], [2, 1]), ([], [1]))
def lists_in_order(xs: List[int], ys: List[int]):
    return min(xs, ys), max(xs, ys), any(["", "a"]), all([1, 0])


@case(((1, 2), (3.0, "a")))
def joined_tuples(a: Tuple[int, int], b: Tuple[float, str]):
    return a + b


@case(("a", 1), ("b", 2.5))
def formats(name: str, value: Union[int, float]):
    if isinstance(value, int):
        return "%s %d %%" % (name, value)
    return "%s %f" % (name, value)


@case((3,))
def too_few_values(n: int):
    return "%d %s" % n


@case(([1, 2, 3],))
def maybe_elements(xs: List[int]):
    empty: List[Optional[int]] = [None for _ in xs]
    empty[1] = 5
    return empty


class Counter:
    """A class that no decorator names: it is scripted where a script names it."""

    def __init__(self, start: int):
        self.count = start
        self.names: List[str] = []

    def add(self, name: str) -> int:
        self.names.append(name)
        self.count += 1
        return self.count

    def __len__(self) -> int:
        return len(self.names)

    def __delitem__(self, k: int):
        del self.names[k]

    def __int__(self) -> int:
        return self.count


@case((3,))
def classes_without_a_decorator(n: int):
    counter = Counter(n)
    counter.add("a")
    counter.add("b")
    del counter[0]
    return len(counter), int(counter), counter.names


@torch.jit.script
@dataclasses.dataclass(order=True)
class Point:
    x: float
    y: float
    scale: dataclasses.InitVar[float] = 2.0
    norm: Optional[float] = None

    def __post_init__(self, scale: float):
        self.norm = (self.x**2 + self.y**2) * scale


@case((1.0, 2.0), (2.0, 1.0))
def points(a: float, b: float):
    one, other = Point(a, b), Point(b, a, 3.0)
    return one.norm, other.norm, one == other, one < other, one <= Point(a, b)


@module((t(1.0, 2.0),))
class Properties(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2.0
        self.shift = nn.ParameterList([nn.Parameter(t(1.0, 1.0)), nn.Parameter(t(2.0, 3.0))])

    @property
    def doubled(self) -> float:
        return self.factor * 2

    @doubled.setter
    def doubled(self, value: float):
        self.factor = value / 2

    def forward(self, x):
        self.doubled = 10.0
        for shift in self.shift:
            x = x + shift
        names = [name for name, _ in self.named_children()]
        return x * self.doubled, self.shift[1] * 2, self.factor, names


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class Twice(nn.Module):
    def forward(self, x):
        return x * 2


class Plus(nn.Module):
    def forward(self, x):
        return x + 1


@module((t(1.0, 2.0), 1), (t(1.0, 2.0), 0))
class Chosen(nn.Module):
    last: Step

    def __init__(self):
        super().__init__()
        self.last = Plus()
        self.same = Twice()
        self.steps = nn.ModuleDict({"twice": self.same, "plus": Plus()})

    def forward(self, x, n: int):
        for name, step in self.steps.items():
            if name != "plus" or n > 0:
                x = step(x)
        return self.last(x), len(self.steps)


@module((t(1.0, 2.0),))
class Restored(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("held", torch.ones(2))
        self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.steps = 3

    @torch.jit.export
    def __getstate__(self):
        return self.held, self.steps, self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state):
        self.held = state[0]
        self.steps = state[1]
        self.weight = state[2]
        self.training = state[3]

    def forward(self, x):
        return x * self.weight + self.held + self.steps


@case((t([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]),))
def powers_of_pools(x):
    one = nn.functional.lp_pool1d(x, 2, 3)
    return one, nn.functional.lp_pool1d(x, 2.0, 3, 2), nn.functional.lp_pool2d(x, 3.0, (1, 2))


@case((t(1.5, -2.5), torch.int64), (t(1.5, 0.0), torch.bool))
def types_of_tensors(x, d: torch.dtype):
    return x.type(d), 2 * x, 2 + x, 2 - x, 2.5 / x


@case((2,), (0,))
def repeated_in_place(n: int):
    xs = [1, 2]
    also = xs
    xs *= n
    return also


@case((1,), (5,))
def conditions_that_are_known(x: int):
    if 1 == 2:
        x = 10
    elif "a" != "b":
        x = x + 1
    else:
        x = 20
    if 3 < 2.5:
        return x
    return x * 2


@case((2, 0.5), (1.5, 2))
def any_number(x: Union[int, float, complex], y: Union[int, float, complex]):
    return x + y


@case((b"a",), ("b",))
def texts_of_bytes(x: str):
    return ord(x), x + "!"


@case((torch.per_tensor_affine,), (torch.per_channel_symmetric,))
def schemes(q: torch.qscheme):
    return q == torch.per_tensor_affine


@case((t([1.0, 2.0], [3.0, 4.0]),))
def operands(x):
    return torch.einsum("ij,jk->ik", x, x), torch.broadcast_tensors(x, x[0])[1]


@case((torch.tensor(3), 2), (torch.tensor(3), 4))
def of_tensors(x, n: int) -> Tuple[int, float, int]:
    # Numbers of unknown kind become what is declared; a variable keeps its type.
    if n > 3:
        n = x
    return x.item(), x.item(), n


@case((torch.tensor(3), 2))
def implicit(x, n: int):
    for _ in range(1):
        n = x
    return n + 1


@case((torch.tensor(3), 2), (torch.tensor(2), 3))
def extremes(x, n: int):
    return max(x, n) + 1, min(n, x) + 1, max(x, 2.5)


@case(([1],), ([1, 2],))
def as_list(sizes: List[int]):
    if len(sizes) == 1:
        sizes = (sizes[0], sizes[0])
    return sizes


@case((torch.tensor(1.5), True), (torch.tensor(1.5), False))
def late(x, given: bool):
    factor: Optional[float] = None
    if given:
        factor = x.item()
    return factor


@case((3, [1.0, 2.0]), (4, [0.5, 0.5]))
def in_pairs(n: int, factors: List[float]):
    from_utils = nn.modules.utils._pair(n)
    return from_utils, nn.modules.utils._pair(factors), nn.modules.utils._triple(2.5)


@module((torch.ones(1, 2, 9, 9),))
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        # Modules of one class, with modules of the library that have numbers of their own.
        self.first = nn.Sequential(Convolved(2, 1), Convolved(2, 2))
        self.last = Convolved(1, 2)

    def forward(self, x):
        return self.last(self.first(x))


class Convolved(nn.Module):
    def __init__(self, groups, dilation):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 2, dilation=dilation, groups=groups)

    def forward(self, x):
        return self.conv(x)


@module((t(1.0), False))
class Refusing(nn.Module):
    def forward(self, x, asks: bool):
        if asks:
            return self.of_python(x)
        return x + 1

    @torch.jit.unused
    def of_python(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@case((t(5, 6), t(3, 1), True), (t(True, False), t(True, True), False))
def bits(x, y, shifts: bool):
    found = x & y, x | y, x ^ y
    if shifts:
        x <<= y
        return found[0] & 3, x >> 1, found[1] << y
    return found


@case((t(5, 6),), (t(5.0, 6.0),))
def of_dtype(x):
    if x.dtype == torch.int64 or x.dtype != torch.float32:
        return x + 1
    return x


def scaled(x, factor: float = 2, shift: Optional[float] = 3):
    return (x * factor, factor, shift)


@case((t(1.0),))
def with_defaults(x):
    return scaled(x), scaled(x, shift=None)


@case(("!B", 3), ("!B", 7), ("a", 4), ("abc", 8), ("", 3))
def centred(text: str, width: int):
    return text.center(width), text.center(width, "*")


class Overloaded(nn.Module):
    @torch.jit._overload_method
    def forward(self, given: List[torch.Tensor]) -> torch.Tensor:
        pass

    @torch.jit._overload_method
    def forward(self, given: torch.Tensor) -> torch.Tensor:  # noqa: F811
        pass

    def forward(self, given):  # noqa: F811
        if isinstance(given, torch.Tensor):
            parts = [given]
        else:
            parts = given
        return torch.cat(parts)


@module((t(1.0, 2.0),))
class CallsOverloads(nn.Module):
    def __init__(self):
        super().__init__()
        self.joined = Overloaded()

    def forward(self, x):
        return self.joined(x), self.joined([x, x])


@case((torch.arange(6.0),))
def split(x):
    first, rest = torch.tensor_split(x, indices=(1,), dim=0)
    return first, rest, torch.tensor_split(rest, sections=2)


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(t(2.0))
        self.factor = 3.0


class Shifted(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.shift = 1


@module((t(1.0, 2.0),))
class HoldsBare(nn.Module):
    def __init__(self):
        super().__init__()
        self.bare, self.linear = Bare(), Shifted()

    def forward(self, x):
        return self.linear(x) * self.bare.weight * self.bare.factor


class Colour(enum.Enum):
    RED = "r"
    GREEN = "g"


@module((t(1.0),))
class HoldsMembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = Colour.GREEN
        self.several = [Colour.RED, Colour.GREEN]

    def forward(self, x):
        if self.one == Colour.RED:
            return x, self.several[0].value
        return x + len(self.several), self.several[1].value


def coloured(x, colour: Colour = Colour.GREEN):
    return x, colour.value


@case((t(1.0),))
def of_default_members(x):
    return coloured(x), coloured(x, Colour.RED)


@case((t(1.0),), (t(1),))
def dtype_of_either(x):
    dtype = x.dtype if torch.is_floating_point(x) else torch.float64
    return torch.zeros([2], dtype=dtype)


@case((True, 3, 2.5, torch.tensor(1.5)), (False, -1, 0.5, torch.tensor(7)))
def complex_of_pairs(yes: bool, n: int, a: float, x):
    return complex(yes, not yes), complex(yes, a), complex(n, yes), complex(x, x), complex(a, x)


@case(
    (torch.zeros(0), torch.full((3, 2), 2.0)),
)
def sizes_of_another(x, y):
    x.resize_as_(y).copy_(y)
    torch.mul(x, y, out=x)
    return x, x.is_contiguous(memory_format=torch.contiguous_format), x.output_nr()


@case(
    (torch.zeros(0), torch.arange(6.0)),
)
def storage_of_another(x, y):
    x.resize_([2, 1, 2, 3], memory_format=torch.channels_last)
    last = x.is_contiguous(torch.channels_last)
    return last, x.stride(), x.set_(y, 1, [2], [2]), y.retains_grad, y.is_distributed()


@case((t([1.0, 2.0], [3.0, 4.0]), torch.tensor([1, 0])))
def items_by_name(x, at):
    return x.__getitem__(at), x.__getitem__(x > 2)


@case(({"b": 1, "a": 2},), ({},))
def keys_as_lists(d: Dict[str, int]):
    names = list(d)
    names.append("c")
    return names, len(d), [k + "!" for k in d]


@case((1 + 2j, 0.5, 3), (0.5j, -1.5, -2))
def mathematics_of_numbers(c: complex, a: float, n: int):
    roots = torch.sqrt(c), torch.exp(c), torch.log(c), torch.log10(c), torch.atan(c), torch.atanh(c)
    waves = torch.sin(c), torch.cos(c), torch.sinh(c), torch.cosh(c), torch.log(c, 3)
    shown = torch.angle(c), torch.angle(a), torch.angle(n), torch.polar(a, a), torch.polar(n, a)
    asked = torch.isnan(c), torch.isinf(c), torch.isfinite(c)
    powers = torch.pow(n, n), torch.pow(n, 2.0), torch.remainder(n, 2), torch.remainder(a, n)
    return roots, waves, shown, asked, powers, torch.lgamma(-2)
