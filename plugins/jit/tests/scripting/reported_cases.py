"""Programs in the style of what users of PyTorch's script language have reported."""

# ruff: noqa
import enum
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import scripted_side as torch
from scripted_side import Tensor, nn

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


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Named(NamedTuple):
    x: int
    y: float = 2.0


@case((None,), (3,))
def refine_and(x: Optional[int]) -> int:
    if x is not None and x > 2:
        return x
    return -1


@case((None,), (3,))
def refine_or(x: Optional[int]) -> int:
    if x is None or x < 2:
        return 0
    return x * 2


@case((None,), (3,))
def refine_not(x: Optional[int]) -> int:
    if not x is None:
        return x
    return 7


@case(([1, None, 3],))
def refine_list(xs: List[Optional[int]]) -> int:
    t = 0
    for x in xs:
        if x is not None:
            t += x
    return t


@case((None,), (2,))
def refine_ternary(x: Optional[int]) -> int:
    y = x if x is not None else 10
    return y + 1


@case((5,), (50,))
def early_in_nested(n: int) -> int:
    for i in range(n):
        for j in range(n):
            if i * j > 20:
                return i * 100 + j
            if j > i:
                break
        else_ = i
        if else_ == 30:
            continue
    return -1


@case((Named(1),), (Named(3, 4.0),))
def named(p: Named) -> Tuple[int, float]:
    q = Named(p.x + 1, y=p.y * 2)
    x, y = q
    return (x + q[0], y)


@case((Color.RED,), (Color.GREEN,))
def enums(c: Color) -> str:
    if c == Color.RED:
        return c.name
    return str(c.value)


@case((3, 2.5, "s"))
def formats(a: int, b: float, c: str) -> str:
    return "{} {:.2f} {}".format(a, b, c) + f"|{a}|{b}|{c}|" + "%d %s %f" % (a, c, b)


@case(({"b": 1, "a": 2},))
def dict_order(d: Dict[str, int]) -> List[str]:
    d["c"] = 3
    d["b"] = 9
    d.pop("a")
    d["a"] = 1
    return [k for k in d] + [str(v) for v in d.values()]


@case((7, -2), (-7, 2), (7, 0))
def int_div(a: int, b: int) -> Tuple[int, int, float]:
    return (a // b, a % b, a / b)


@case((7.5, -2.0), (-7.5, 2.0), (1.0, 0.0))
def float_div(a: float, b: float) -> Tuple[float, float, float]:
    return (a // b, a % b, a / b)


@case((2, 70), (2, -1), (-2, 3))
def powers(a: int, b: int):
    return a**b


@case(([1, 2, 3, 4, 5],))
def slices(xs: List[int]):
    return (xs[:], xs[1:], xs[:-1], xs[::2], xs[::-1], xs[-2:], xs[10:], xs[3:1], xs[-1:-4:-1])


@case(("hello",))
def strslice(s: str):
    return (s[1:3], s[::-1], s[-3:], s[::2], s[10:])


@case(([1, 2],))
def alias2(xs: List[int]) -> List[List[int]]:
    m = [xs] * 2
    m[0].append(7)
    return m


@case((torch.ones(3),))
def tensor_aug(x: Tensor) -> Tuple[Tensor, Tensor]:
    y = x
    y += 1
    z = y
    z = z + 1
    z[0] = 5
    return (x, z)


@case((torch.arange(12).reshape(3, 4),))
def tslices(x: Tensor):
    return (x[1], x[:, ::2], x[..., -1], x[None, 1:, 0], x[x > 5], x[-1, 1:3])


@case((torch.ones(2, 3),))
def shape(x: Tensor) -> int:
    b, c = x.shape
    return b * 10 + c + len(x.shape) + x.size(-1)


@case(([3, 1, 2],))
def sorts(xs: List[int]) -> Tuple[List[int], List[int]]:
    ys = sorted(xs)
    xs.sort(reverse=True)
    return (xs, ys)


@case((1,), ("a",), (2.0,))
def unions(x: Union[int, str, float]) -> str:
    if isinstance(x, int):
        return "int" + str(x + 1)
    elif isinstance(x, str):
        return x + "s"
    else:
        return str(x * 2)


@case((5,))
def comp(n: int):
    return ([i * i for i in range(n)], {i: str(i) for i in range(n)}, [x for x in [1, 2]])


@case(([1, 2, 3],))
def unpack(xs: List[int]) -> int:
    a, b, c = xs
    return a * 100 + b * 10 + c


@case(([1, 2, 3, 4],))
def star(xs: List[int]):
    t = (1, 2.0, "a")
    a, *b = t
    return (a, b)


@case((2,))
def chained(n: int) -> bool:
    return 0 < n < 5 and 1 <= n <= 2


@case((0,), (2,))
def assertion(n: int) -> int:
    assert n > 1, f"n was {n}"
    return n


@case((3,))
def listmul(n: int):
    xs = [0] * n
    ys = [[1]] * n
    ys[0][0] = 5
    return (xs, ys)


@case(([1.0, 2.0],))
def listfns(xs: List[float]):
    return (
        sum(xs),
        min(xs),
        max(xs),
        len(xs),
        xs.index(2.0),
        xs.count(1.0),
        any([x > 1.5 for x in xs]),
        all([x > 0.5 for x in xs]),
    )


@case((3, 4))
def swap(a: int, b: int) -> Tuple[int, int]:
    a, b = (b, a)
    return (a, b)


@case((None,))
def ret_none(x: Optional[Tensor]) -> Optional[Tensor]:
    if x is None:
        return None
    return x + 1


@case((2.5,), (-2.5,), (3.5,), (0.5,))
def rounding(x: float):
    return (round(x), int(x), math.floor(x), math.ceil(x), abs(x))


@case(([],))
def empties(xs: List[int]) -> int:
    return xs[0]


@case(([1, 2, 3],))
def delitem(xs: List[int]) -> List[int]:
    del xs[1]
    return xs


@case((3,))
def anytype(x: Any) -> int:
    if isinstance(x, int):
        return x + 1
    return 0


@case(([1, 2], ["a", "b"]))
def zips(xs: List[int], ys: List[str]):
    out: List[str] = []
    for i, (x, y) in enumerate(zip(xs, ys)):
        out.append(str(i) + str(x) + y)
    return out


@case((10,))
def rangestep(n: int):
    return ([i for i in range(n, 0, -3)], [i for i in range(2, n, 4)])


@case((torch.tensor([1.5]),), (torch.tensor(3),))
def tensor_num(x: Tensor):
    return (int(x), float(x), bool(x > 1), x.item())


@case((torch.tensor([1, 2]),))
def tensor_iter(x: Tensor) -> int:
    t = 0
    for v in x:
        t += int(v)
    return t


@case((torch.ones(2),))
def tolist(x: Tensor) -> List[float]:
    y: List[float] = x.tolist()
    return y


@case(("12", "x"))
def parse(a: str, b: str) -> Tuple[int, float]:
    return (int(a), float(a))


@torch.jit.interface
class Iface(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Add(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class Mul(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 3


@module((torch.ones(2),))
class NegIndex(nn.Module):
    def __init__(self):
        super().__init__()
        self.ms = nn.ModuleList([Add(), Mul()])

    def forward(self, x: Tensor) -> Tensor:
        return self.ms[-1](x) + len(self.ms)


@module((torch.ones(2), "a"), (torch.ones(2), "zz"))
class DictMods(nn.Module):
    def __init__(self):
        super().__init__()
        self.ms = nn.ModuleDict({"a": Add(), "b": Mul()})

    def forward(self, x: Tensor, k: str) -> Tensor:
        for n, m in self.ms.items():
            if n == k:
                x = m(x)
        if "b" in self.ms:
            x = x + 10
        return x


@module((torch.ones(2),))
class Exported(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.hist: List[int] = [0]

    def forward(self, x: Tensor) -> Tensor:
        self.bump(2)
        return x + self.n

    @torch.jit.export
    def bump(self, k: int) -> int:
        self.n += k
        self.hist.append(self.n)
        return self.n


@module((torch.ones(2),))
class OptSub(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Add()
        self.b: Optional[nn.Module] = None

    def forward(self, x: Tensor) -> Tensor:
        if self.b is not None:
            x = self.b(x)
        return self.a(x)


@module((torch.ones(2),))
class Prop(nn.Module):
    def __init__(self):
        super().__init__()
        self._v = 3

    @property
    def v(self) -> int:
        return self._v * 2

    @v.setter
    def v(self, x: int):
        self._v = x

    def forward(self, x: Tensor) -> Tensor:
        self.v = self.v + 1
        return x + self.v


@module((torch.ones(2),), (torch.ones(2), 2))
class Defaults(nn.Module):
    def forward(self, x: Tensor, k: int = 4, s: Optional[List[int]] = None) -> Tensor:
        if s is None:
            s = [k]
        return x + sum(s)


class Over(nn.Module):
    @torch.jit._overload_method
    def f(self, x: int) -> int: ...

    @torch.jit._overload_method
    def f(self, x: Tensor) -> Tensor: ...

    def f(self, x):
        return x + 1

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x) + self.f(2)


@module((torch.ones(2),))
class ParamList(nn.Module):
    def __init__(self):
        super().__init__()
        self.ps = nn.ParameterList([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))])

    def forward(self, x: Tensor) -> Tensor:
        for p in self.ps:
            x = x + p
        return x + self.ps[0]


@module((torch.ones(2),))
class BufNone(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", None)
        self.register_parameter("p", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.b is None and self.p is None:
            return x
        return x + 1


@module((torch.ones(2),))
class Hasattr(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = 1

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "zz"):
            return x + self.zz
        return x + getattr(self, "a")


@module((torch.ones(2),))
class Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.s = nn.Sequential(Add(), Mul())

    def forward(self, x: Tensor) -> Tensor:
        for i, m in enumerate(self.s):
            x = m(x) + i
        return self.s(x) + self.s[0](x)


@module(([torch.ones(2), torch.zeros(2)],))
class ListTensor(nn.Module):
    def forward(self, xs: List[Tensor]) -> Tensor:
        xs[0] += 1
        xs.append(xs[0])
        return torch.stack(xs).sum(0)


@module(({"a": torch.ones(2)},))
class DictTensor(nn.Module):
    def forward(self, d: Dict[str, Tensor]) -> Dict[str, Tensor]:
        d["b"] = d["a"] + 1
        out: Dict[str, Tensor] = {}
        for k, v in d.items():
            out[k + "x"] = v
        return out


@module((torch.ones(2),))
class Static(nn.Module):
    @staticmethod
    def g(x: Tensor, n: int = 2) -> Tensor:
        return x * n

    def forward(self, x: Tensor) -> Tensor:
        return self.g(x) + Static.g(x, 3)


@case(("a", 1))
def texts_of_containers(a: str, n: int):
    pair = Named(n)
    member = str(Color.RED)
    made = "%s %s" % ([a], (a,))
    return str([a, a]), str((a, n)), str({a: [a]}), made, "{}".format([a]), str(pair), member


@case((torch.tensor(96.0), 320.0), (torch.tensor(99.0), 333.0))
def sizes_of_quotients(x: Tensor, n: float):
    return int((n / x).item() * float(x)), int(((7 / x) * x).item() * 4)


@case((torch.tensor([3, 1, 3, 3]),))
def distinct(x: Tensor):
    values, places = torch.unique(x, return_inverse=True)
    rows, counts = torch.unique(x, True, False, True, dim=0)
    return torch.unique(x), values, places, rows, counts


@case((torch.tensor([3, 1, 3, 3]),))
def runs(x: Tensor):
    values, places, counts = torch.unique_consecutive(x, True, True)
    rows, more = torch.unique_consecutive(x, return_counts=True, dim=0)
    return torch.unique_consecutive(x), values, places, counts, rows, more


@case(([torch.ones(2), 3],), ((torch.ones(2), 3),))
def a_list_for_a_tuple(pair: Tuple[Tensor, int]):
    return pair[0] * pair[1]


@case(([[1, 2], (3, 4)],))
def lists_for_tuples_in_a_list(pairs: List[Tuple[int, int]]):
    return pairs[0][1] + pairs[1][0]


module((torch.ones(2),))(Over)
