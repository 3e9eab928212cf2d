"""Programs of the script language, with arguments, loaded once for each side.

`scripted_side` is PyTorch or tangrad: tests put it into `sys.modules` before they load this.
"""

# ruff: noqa: UP006, UP007, UP031, UP035, UP045, B007, B905, C416, RUF012
import enum
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import scripted_side as torch
from scripted_side import nn

CASES = []


def case(*args):
    """Add a function with the arguments of its calls."""

    def add(function):
        CASES.append((function, args))
        return function

    return add


def t(*values):
    return torch.tensor(values)


@case((t(1.0, 2.0), 5), (t(1.0, 2.0), 0))
def loops(x, n: int):
    y: List[int] = []
    total = 0.0
    for i in range(n):
        if i == 3:
            continue
        y.append(i)
        total += i * 0.5
        x = x + i
    while n > 0:
        n -= 1
        if n == 1:
            break
    return x.sum(), y, n, total


@case((7, -2), (-7, 2), (2**63 - 1, 3), (-(2**63), 1))
def integers(a: int, b: int):
    c = a
    c += b
    c *= 3
    c -= 1
    return a + b, a - b, a * b, a // b, a % b, a / b, a << 2, a >> 1, a & b, a | b, a ^ b, -a, c


@case((7.5, -2.0), (-1.0, 3.0), (1e300, 1e10), (0.0, -0.5))
def floats(a: float, b: float):
    return a + b, a * b, a // b, a % b, a / b, abs(a), min(a, b), max(a, b), round(a), int(a), -a


@case((2.5,), (-1.0,), (0.0,))
def mathematics(a: float):
    return (
        math.sqrt(a),
        math.log(a),
        math.exp(a),
        math.sin(a),
        math.floor(a),
        math.ceil(a),
        math.atan2(a, 2.0),
        math.pow(a, 2.0),
        math.fabs(a),
        math.isnan(a),
        math.copysign(1.0, a),
        math.pi,
    )


@case((1.5, 2), (-1.0, -3), (1e300, 7))
def texts(a: float, n: int):
    s = "abc def"
    return (
        f"{a} {n}",
        f"{a} {n}",
        str(n),
        s.upper(),
        s.split(" "),
        s[1],
        s[::2],
        s.find("d"),
        s.replace("a", "x"),
        "-".join(["a", "b"]),
        "a" in s,
        s.startswith("ab"),
        len(s),
        s.strip("a"),
        s.title(),
        "%d %s" % (n, "x"),
        s.count("d"),
        s == "abc def",
        s < "b",
        s + "!",
    )


@case(([3, 1, 2], 1), ([5, 5, 0], -1))
def lists(xs: List[int], i: int):
    ys = xs + [i]
    ys.sort()
    zs = [x * 2 for x in xs]
    zs.insert(1, 9)
    zs.reverse()
    last = zs.pop()
    zs.extend(ys)
    del zs[0]
    xs[i] = 100
    xs[0] += 1
    return (
        ys,
        zs,
        last,
        xs,
        xs[-1],
        xs[:2],
        xs[::2],
        len(xs),
        max(ys),
        min(ys),
        sum(ys),
        i in xs,
        sorted(xs),
    )


@case(({"a": 1, "b": 2}, "a"), ({"x": 3}, "z"))
def dicts(d: Dict[str, int], k: str):
    out: List[str] = []
    for key in d:
        out.append(key)
    for key, value in d.items():
        out.append(f"{key}={value}")
    d["new"] = 5
    e = {key: value + 1 for key, value in d.items()}
    found = d.get(k)
    if found is not None:
        d[k] = found + 10
    if "a" in d:
        del d["a"]  # noqa: RUF051
    return out, e, d, len(d), list(d.keys()), list(d.values()), d.get(k, -1)


@case((1,), (None,))
def optionals(x: Optional[int]) -> int:
    if x is None:
        y = 3
    else:
        y = x + 1
    if x is not None and x > 0:
        y += x
    z: Optional[int] = None
    if y > 2:
        z = y
    assert z is not None or y <= 2
    return y if z is None else z + y


@case((3,), ("ab",), (None,))
def unions(x: Union[int, str, None]) -> str:
    if isinstance(x, int):
        return str(x + 1)
    if isinstance(x, str):
        return x + "!"
    return "none"


@case((t(1.0, 2.0, 3.0),), (t(-1.0, 0.0),))
def early(x):
    if x.sum() > 3:
        return x * 2
    for i in range(3):
        x = x + 1
        if bool(x.sum() > 4):
            return x
    return -x


@case((t(1.0, 2.0, 3.0), 2))
def tensors(x, n: int):
    a = torch.zeros(2, 3)
    a[0] = x
    a[:, 1] += 1.0
    b = torch.cat([a, a], dim=0)
    values, indices = b.max(1)
    c = b[..., :n]
    d = b[None, 0]
    e = torch.arange(n).to(torch.float32)
    return a, b, values, indices, c, d, e, b.size(), b.shape[0], b.dim(), x.numel(), b.mean(dim=1)


@case((t(1.0, 2.0),))
def in_place(x):
    y = x.clone()
    y += 1
    y *= 2
    y.sub_(1)
    z = y
    z /= 2
    return y, z


@case(((1, 2), (2.0, "a")))
def tuples(x: Tuple[int, int], y: Tuple[float, str]):
    a, b = x
    c, *d = (a, b, 3)
    (e, f), g = y, x
    total = 0
    for item in (a, b, c):
        total += item
    return a, b, c, d, e, f, g, total, x[0], x[-1], len(x), y[1]


class Point(NamedTuple):
    x: torch.Tensor
    y: int = 3


@case((t(1.0), 4))
def named_tuples(x, n: int):
    p = Point(x, n)
    q = Point(x)
    a, b = p
    return p.x + p.y, q.y, b, a


class Color(enum.Enum):
    RED = 1
    GREEN = 2


@case((1,), (2,))
def enums(n: int):
    c = Color.RED
    if n == 2:
        c = Color.GREEN
    return c == Color.RED, c.value, c.name


@torch.jit.script
class Counter:
    def __init__(self, start: int, names: List[str]):
        self.value = start
        self.names = names

    def add(self, n: int) -> int:
        self.value += n
        return self.value

    @property
    def double(self) -> int:
        return self.value * 2

    def __add__(self, other: int) -> int:
        return self.value + other

    def __len__(self) -> int:
        return len(self.names)

    @staticmethod
    def twice(n: int) -> int:
        return n * 2


@case((3,))
def classes(n: int):
    c = Counter(n, ["a", "b"])
    c.add(2)
    c.add(n)
    c.value = c.value + 1
    return c.value, c.double, c + 5, len(c), Counter.twice(n), c.names


def helper(x, k: int = 2, flag: bool = True):
    if flag:
        return x * k
    return x


@case((t(1.0, 2.0),))
def calls(x):
    return helper(x) + helper(x, 3) + helper(x, flag=False, k=7)


@case(([1, 2, 3], ["a", "b"]))
def iterators(xs: List[int], ys: List[str]):
    out: List[str] = []
    for i, x in enumerate(xs):
        out.append(f"{i}{x}")
    for x, y in zip(xs, ys):
        out.append(f"{x}{y}")
    for i, (x, y) in enumerate(zip(xs, ys), 1):
        out.append(f"{i}{x}{y}")
    for c in "xy":
        out.append(c)
    for i in range(10, 0, -3):
        out.append(str(i))
    return out


@case((t(1.0, 2.0),))
def contexts(x):
    with torch.no_grad():
        y = x * 2
    return y, y.requires_grad


@case((1, 2.0), (3, -1.0))
def conditions(a: int, b: float):
    c = 1 if a > b else 2
    d = (a > 0 and b > 0) or a == 3
    e = not d
    f = 0 < a < 3
    g = a != b
    return c, d, e, f, g, bool(a), bool(b)


@case((True, 3), (False, -3))
def bools(a: bool, n: int):
    return a and n > 0, a or n > 0, not a, a == True, int(a) + n, a & (n > 0), a | False  # noqa: E712


@case((t(1.5),), (t(3.0),))
def conversions(x):
    return int(x), float(x), bool(x), x.item() > 2.0, int(x) + 1, float(int(x))


@case((complex(1, 2), 2.0))
def complexes(a: complex, b: float):
    return a + b, a * a, abs(a), a == a, complex(b, 1.0)


@case((t(3.0, 1.0),), (t(),))
def annotated(x):
    xs = torch.jit.annotate(List[float], [])
    d = torch.jit.annotate(Dict[str, List[int]], {})
    d["a"] = [1]
    d["a"].append(2)
    if x.numel() > 0:
        xs.append(float(x[0]))
    o = torch.jit.annotate(Optional[int], None)
    return xs, d, o


@case(({"a": [1, 2]}, [[1], [2, 3]]))
def nested(d: Dict[str, List[int]], xs: List[List[int]]):
    total = 0
    for k in d:
        for v in d[k]:
            total += v
    for row in xs:
        row.append(0)
        for v in row:
            total += v
    return total, xs, [[y + 1 for y in x] for x in xs]


def commented(x, n):
    # type: (Tensor, int) -> Tensor
    return x + n


CASES.append((commented, ((t(1.0), 2),)))


@case((3,), (-1,))
def failing(n: int):
    if n < 0:
        raise ValueError(f"negative: {n}")
    assert n > 5, "too small"
    return n


@case(([1], 3), ([1, 2, 3, 4], -5))
def out_of_range(xs: List[int], i: int):
    return xs[i]


@case((1, 0))
def by_zero(a: int, b: int):
    return a // b


@case(({"a": 1}, "b"))
def missing_key(d: Dict[str, int], k: str):
    return d[k]


@case((5,), (0,))
def doubles(n: int):
    a, b = 0, 1
    out: List[int] = []
    while a < n:
        out.append(a)
        a, b = b, a + b
    return out


@case((t(1.0, -2.0, 3.0),))
def functions(x):
    y = torch.nn.functional.relu(x)
    z = nn.functional.softmax(x, dim=0)
    w = torch.where(x > 0, x, torch.zeros_like(x))
    v = torch.stack([x, y])
    u = v.view(-1).reshape(3, 2).t().unsqueeze(0)
    return y, z, w, v, u, torch.max(x), x.sum(dim=0, keepdim=True), x @ x, torch.topk(x, 2)[0]


@case((t(1.0, 2.0, 3.0, 4.0),))
def splits(x):
    a, b = x.chunk(2)
    c, d = torch.split(x, 2)
    parts = x.split([1, 3])
    e = [p.sum() for p in parts]
    return a, b, c, d, len(parts), e


@case((4,), (9,))
def any_values(n: int) -> Any:
    if n > 5:
        return "big"
    return n


@case((t(1.0, 2.0),))
def lists_of_tensors(x):
    xs = []
    for i in range(3):
        xs.append(x * i)
    ys: List[torch.Tensor] = [x]
    ys += xs
    return torch.stack(xs), len(ys), xs[0] is xs[1]


@case(([1.5, 2.5],), ([],))
def sums(xs: List[float]):
    total = 0.0
    for x in xs:
        total = total + x
    ys = [x for x in xs]
    return total, ys, sum(xs), len(xs) == 0


MODULES = []


def module(*args):
    """Add a class of modules with the arguments of calls of an instance."""

    def add(cls):
        MODULES.append((cls, args))
        return cls

    return add


@module((t(1.0, 2.0, 3.0), 2), (t(0.0, 1.0, 0.0), 5))
class Looping(nn.Module):
    names: List[str]
    maybe: Optional[int]

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.limit = 3
        self.register_buffer("b", torch.ones(3))
        self.names = []
        self.maybe = None
        self.scale = 0.5
        self.table = {"a": 1.0}
        self.sizes = [1, 2]

    def forward(self, x, n: int = 2):
        for i in range(n):
            if i == self.limit:
                break
            x = self.lin(x) * self.scale + self.b
        self.names.append("x")
        if self.maybe is not None:
            x = x + 1
        return x, self.helper(n), self.names, self.table["a"], self.sizes

    def helper(self, n: int) -> int:
        self.scale = self.scale * 2
        return n * self.limit


@module((t(1.0, 2.0),))
class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
        self.seq = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
        self.heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 3)})
        self.norm = nn.LayerNorm(2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        for i, layer in enumerate(self.layers):
            x = x + i * layer(x)
        out = self.seq(self.norm(x))
        results: Dict[str, torch.Tensor] = {}
        for name, head in self.heads.items():
            results[name] = head(out)
        return out, results, self.layers[0](x), len(self.layers), self.heads["a"](x)


@module((t(1.0, 2.0),))
class Constants(nn.Module):
    __constants__ = ["k", "flag"]

    def __init__(self):
        super().__init__()
        self.k = 4
        self.flag = False
        self.act = torch.nn.functional.relu
        self.down = None

    def forward(self, x):
        if self.flag:
            return "never", x
        if self.down is not None:
            x = self.down(x)
        return self.act(x) * self.k

    @torch.jit.export
    def other(self, n: int) -> int:
        return n + self.k


@module((torch.ones(2, 1, 8, 8),))
class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.bn = nn.BatchNorm2d(3)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(3 * 4 * 4, 5)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn(self.conv(x))))
        return self.fc(self.drop(torch.flatten(x, 1)))


@module((torch.ones(3, 2, 4),))
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)
        self.lstm = nn.LSTM(4, 5)
        self.gru = nn.GRU(4, 5)

    def forward(self, x, state: Optional[Tuple[torch.Tensor, torch.Tensor]] = None):
        if state is None:
            h = torch.zeros(x.size(1), 5)
            state = (h, h)
        outs: List[torch.Tensor] = []
        for i in range(x.size(0)):
            state = self.cell(x[i], state)
            outs.append(state[0])
        y, (hn, cn) = self.lstm(x)
        z, _ = self.gru(x)
        return torch.stack(outs), state, y, hn, cn, z


@module((t(1, 2),))
class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(5, 3)
        self.act = nn.GELU()

    def forward(self, ids):
        return self.act(self.emb(ids)).mean(dim=-1)


@torch.jit.interface
class Shaped:
    def area(self, n: int) -> int:
        pass


@torch.jit.script
class Square:
    def __init__(self, side: int):
        self.side = side

    def area(self, n: int) -> int:
        return self.side * self.side * n


def areas(shape: Shaped, n: int) -> int:
    return shape.area(n)


@case((3,))
def interfaces(n: int):
    return areas(Square(n), 2)


def forked(x, n: int):
    return x * n


@case((t(1.0, 2.0),))
def futures(x):
    first = torch.jit.fork(forked, x, 2)
    second = torch.jit.fork(forked, x, 3)
    return torch.jit.wait(first) + torch.jit.wait(second)


@case((t(1.0, 2.0),))
def static_branches(x):
    if torch.jit.is_scripting():
        y = x + 1
    else:
        y = no_such_function(x)  # noqa: F821
    return y


@case((t([1.0, 2.0]),))
def as_lists(x):
    y: List[List[float]] = x.tolist()
    return y


@torch.jit.ignore
def outside(n: int) -> int:
    return sum(range(n))


@module((4,))
class Modified(nn.Module):
    size: torch.jit.Final[int]

    def __init__(self):
        super().__init__()
        self.size = 3
        self.pairs = [(1, "a"), (2, "b")]

    @property
    def doubled(self) -> int:
        return self.size * 2

    @torch.jit.unused
    def dropped(self, n: int) -> int:
        return len(str(self)) + n

    def forward(self, n: int):
        total = self.doubled
        for number, _ in self.pairs:
            total += number
        return n + self.size, total, self.pairs[0][1]


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = 2.0

    def forward(self, x):
        return x * self.k


@module((t(1.0, 2.0),))
class Derived(Base):
    def forward(self, x):
        return Base.forward(self, x) + 1 if False else self.other(x)

    def other(self, x):
        return x - self.k
