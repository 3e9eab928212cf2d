"""Operations on numbers, texts, lists and dicts: signatures, and the Python that computes them.

Each line is `name(parameters) -> result :: template`. In a template `_0`, `_1`, ... are the
arguments; what begins with `int:` may leave 64 bits and is wrapped, and functions that begin with
`rt_` are those of `program.numbers` and `program.values`. `num` is int or float, and as a result
float where an argument is. `t`, `k` and `v` stand for any type, the same in each place. A line that
begins with `!` changes its first argument.
"""

from __future__ import annotations

__all__ = ["METHODS", "TABLE"]

_ARITHMETIC = """
add(int a, int b) -> int :: int: _0 + _1
add(num a, num b) -> num :: _0 + _1
add(scalar a, scalar b) -> complex :: _0 + _1
add(str a, str b) -> str :: _0 + _1
add(t[] a, t[] b) -> t[] :: _0 + _1
sub(int a, int b) -> int :: int: _0 - _1
sub(num a, num b) -> num :: _0 - _1
sub(scalar a, scalar b) -> complex :: _0 - _1
mul(int a, int b) -> int :: int: _0 * _1
mul(num a, num b) -> num :: _0 * _1
mul(scalar a, scalar b) -> complex :: _0 * _1
mul(t[] l, int n) -> t[] :: _0 * _1
mul(int n, t[] l) -> t[] :: _0 * _1
div(num a, num b) -> float :: div: _0 / _1
div(scalar a, scalar b) -> complex :: rt_complex_div(_0, _1)
floordiv(int a, int b) -> int :: int: _0 // _1
floordiv(num a, num b) -> float :: rt_floordiv(_0, _1)
remainder(int a, int b) -> int :: _0 % _1
remainder(num a, num b) -> float :: rt_remainder(_0, _1)
pow(num a, num b) -> float :: rt_pow(_0, _1)
pow(scalar a, scalar b) -> complex :: rt_complex_pow(_0, _1)
fmod(num a, num b) -> float :: rt_fmod(_0, _1)
__lshift__(int a, int b) -> int :: rt_lshift(_0, _1)
__rshift__(int a, int b) -> int :: rt_rshift(_0, _1)
__and__(bool a, bool b) -> bool :: _0 & _1
__and__(int a, int b) -> int :: _0 & _1
__or__(bool a, bool b) -> bool :: _0 | _1
__or__(int a, int b) -> int :: _0 | _1
__xor__(bool a, bool b) -> bool :: _0 ^ _1
__xor__(int a, int b) -> int :: _0 ^ _1
neg(int a) -> int :: int: -_0
neg(float a) -> float :: -_0
neg(complex a) -> complex :: -_0
abs(int a) -> int :: int: abs(_0)
abs(float a) -> float :: abs(_0)
abs(complex a) -> float :: abs(_0)
__not__(bool self) -> bool :: not _0
divmod(int x, int y) -> (int, int) :: rt_divmod(_0, _1)
divmod(num x, num y) -> (float, float) :: rt_float_divmod(_0, _1)
round(num a) -> float :: rt_round(_0)
__derive_index(int index, int start, int step) -> int :: int: _1 + _0 * _2
__range_length(int lo, int hi, int step) -> int :: rt_range_length(_0, _1, _2)
gcd(int a, int b) -> int :: rt_gcd(_0, _1)
type_text(any self) -> str :: str(type(_0))
_get_tracing_state() -> bool :: False
_single(int x) -> int[] :: [_0] * 1
_single(int[] x) -> int[] :: _0
_single(float x) -> float[] :: [_0] * 1
_single(float[] x) -> float[] :: _0
_pair(int x) -> int[] :: [_0] * 2
_pair(int[] x) -> int[] :: _0
_pair(float x) -> float[] :: [_0] * 2
_pair(float[] x) -> float[] :: _0
_triple(int x) -> int[] :: [_0] * 3
_triple(int[] x) -> int[] :: _0
_triple(float x) -> float[] :: [_0] * 3
_triple(float[] x) -> float[] :: _0
_quadruple(int x) -> int[] :: [_0] * 4
_quadruple(int[] x) -> int[] :: _0
_quadruple(float x) -> float[] :: [_0] * 4
_quadruple(float[] x) -> float[] :: _0
min(int a, int b) -> int :: min(_0, _1)
min(num a, num b) -> float :: rt_min(_0, _1)
min(t[] l, t[] r) -> t[] :: rt_min_of(_0, _1)
max(t[] l, t[] r) -> t[] :: rt_max_of(_0, _1)
min(bool[] self) -> bool :: rt_least(_0)
min(int[] self) -> int :: rt_least(_0)
min(float[] self) -> float :: rt_least(_0)
min(str[] self) -> str :: rt_least(_0)
min(int[] l, int[] r) -> int[] :: min(_0, _1)
min(float[] l, float[] r) -> float[] :: min(_0, _1)
max(int a, int b) -> int :: max(_0, _1)
max(num a, num b) -> float :: rt_max(_0, _1)
max(bool[] self) -> bool :: rt_greatest(_0)
max(int[] self) -> int :: rt_greatest(_0)
max(float[] self) -> float :: rt_greatest(_0)
max(str[] self) -> str :: rt_greatest(_0)
max(int[] l, int[] r) -> int[] :: max(_0, _1)
max(float[] l, float[] r) -> float[] :: max(_0, _1)
sum(int[] self) -> int :: rt_sum(_0)
sum(float[] self) -> float :: sum(_0, 0.0)
sum(complex[] self) -> complex :: sum(_0, 0j)
sum(bool[] self) -> int :: sum(_0)
any(bool[] self) -> bool :: any(_0)
any(int[] self) -> bool :: any(_0)
any(float[] self) -> bool :: any(_0)
any(str[] self) -> bool :: any(_0)
all(bool[] self) -> bool :: all(_0)
all(int[] self) -> bool :: all(_0)
all(float[] self) -> bool :: all(_0)
all(str[] self) -> bool :: all(_0)
eq(bool a, bool b) -> bool :: _0 == _1
eq(scalar a, scalar b) -> bool :: _0 == _1
eq(str a, str b) -> bool :: _0 == _1
eq(t[] a, t[] b) -> bool :: _0 == _1
eq(Dict(k, v) a, Dict(k, v) b) -> bool :: _0 == _1
eq(Device a, Device b) -> bool :: _0 == _1
eq(code a, code b) -> bool :: _0 == _1
eq(enum a, enum b) -> bool :: _0 is _1
eq(tuple a, tuple b) -> bool :: _0 == _1
ne(bool a, bool b) -> bool :: _0 != _1
ne(scalar a, scalar b) -> bool :: _0 != _1
ne(str a, str b) -> bool :: _0 != _1
ne(t[] a, t[] b) -> bool :: _0 != _1
ne(Dict(k, v) a, Dict(k, v) b) -> bool :: _0 != _1
ne(Device a, Device b) -> bool :: _0 != _1
ne(code a, code b) -> bool :: _0 != _1
ne(enum a, enum b) -> bool :: _0 is not _1
ne(tuple a, tuple b) -> bool :: _0 != _1
lt(num a, num b) -> bool :: _0 < _1
lt(str a, str b) -> bool :: _0 < _1
lt(t[] a, t[] b) -> bool :: _0 < _1
le(num a, num b) -> bool :: _0 <= _1
le(str a, str b) -> bool :: _0 <= _1
le(t[] a, t[] b) -> bool :: _0 <= _1
gt(num a, num b) -> bool :: _0 > _1
gt(str a, str b) -> bool :: _0 > _1
gt(t[] a, t[] b) -> bool :: _0 > _1
ge(num a, num b) -> bool :: _0 >= _1
ge(str a, str b) -> bool :: _0 >= _1
ge(t[] a, t[] b) -> bool :: _0 >= _1
__is__(any a, any b) -> bool :: _0 is _1
__isnot__(any a, any b) -> bool :: _0 is not _1
"""

_CONVERSIONS = """
Int(Tensor a) -> int :: rt_int(_0)
Int(Scalar a) -> int :: int(_0)
Int(bool a) -> int :: int(_0)
Int(int a) -> int :: _0
Int(float a) -> int :: rt_int_of_float(_0)
Int(str a) -> int :: rt_int_of_str(_0)
Int(code a) -> int :: rt_code(_0)
Float(Tensor a) -> float :: float(_0)
Float(Scalar a) -> float :: float(_0)
Float(bool a) -> float :: float(_0)
Float(int a) -> float :: float(_0)
Float(float a) -> float :: _0
Float(str a) -> float :: rt_float_of_str(_0)
Bool(Tensor a) -> bool :: bool(_0)
Bool(Scalar a) -> bool :: bool(_0)
Bool(bool a) -> bool :: _0
Bool(int a) -> bool :: _0 != 0
Bool(float a) -> bool :: _0 != 0.0
Bool(str a) -> bool :: _0 != ''
Complex(Tensor a) -> complex :: complex(_0)
Complex(scalar a) -> complex :: complex(_0)
Complex(bool a) -> complex :: complex(_0)
Complex(scalar a, scalar b) -> complex :: complex(_0, _1)
Complex(bool a, bool b) -> complex :: complex(_0, _1)
Complex(bool a, scalar b) -> complex :: complex(_0, _1)
Complex(scalar a, bool b) -> complex :: complex(_0, _1)
Complex(Tensor a, Tensor b) -> complex :: complex(_0.item(), _1.item())
Complex(Tensor a, scalar b) -> complex :: complex(_0.item(), _1)
Complex(scalar a, Tensor b) -> complex :: complex(_0, _1.item())
str(str a) -> str :: _0
str(int a) -> str :: str(_0)
str(any a) -> str :: rt_text(_0)
chr(int i) -> str :: chr(_0)
ord(str string) -> int :: rt_ord(_0)
hex(int i) -> str :: hex(_0)
oct(int i) -> str :: oct(_0)
bin(int i) -> str :: bin(_0)
len(t[] a) -> int :: len(_0)
len(Dict(k, v) self) -> int :: len(_0)
len(str s) -> int :: len(_0)
len(Tensor t) -> int :: len(_0)
list(t[] l) -> t[] :: list(_0)
list(str l) -> str[] :: list(_0)
list(Dict(k, v) l) -> k[] :: list(_0)
dict(Dict(k, v) self) -> Dict(k, v) :: dict(_0)
sorted(t[] input) -> t[] :: rt_sorted(_0)
hash(any value) -> int :: hash(_0)
"""

_MATHEMATICS = """
ceil(num a) -> int :: rt_ceil(_0)
floor(num a) -> int :: rt_floor(_0)
sqrt(num a) -> float :: rt_sqrt(_0)
exp(num a) -> float :: rt_exp(_0)
expm1(num a) -> float :: rt_expm1(_0)
log(num a) -> float :: rt_log(_0)
log(num a, num b) -> float :: rt_log_base(_0, _1)
log1p(num a) -> float :: rt_log1p(_0)
log10(num a) -> float :: rt_log10(_0)
sin(num a) -> float :: rt_sin(_0)
cos(num a) -> float :: rt_cos(_0)
tan(num a) -> float :: rt_tan(_0)
asin(num a) -> float :: rt_asin(_0)
acos(num a) -> float :: rt_acos(_0)
atan(num a) -> float :: rt_atan(_0)
atan2(num a, num b) -> float :: rt_atan2(_0, _1)
sinh(num a) -> float :: rt_sinh(_0)
cosh(num a) -> float :: rt_cosh(_0)
tanh(num a) -> float :: rt_tanh(_0)
asinh(num a) -> float :: rt_asinh(_0)
acosh(num a) -> float :: rt_acosh(_0)
atanh(num a) -> float :: rt_atanh(_0)
erf(num a) -> float :: rt_erf(_0)
erfc(num a) -> float :: rt_erfc(_0)
gamma(num a) -> float :: rt_gamma(_0)
lgamma(num a) -> float :: rt_lgamma(_0)
degrees(num a) -> float :: rt_degrees(_0)
radians(num a) -> float :: rt_radians(_0)
fabs(num a) -> float :: abs(float(_0))
factorial(int a) -> int :: rt_factorial(_0)
frexp(num a) -> (float, int) :: rt_frexp(_0)
ldexp(float x, int i) -> float :: rt_ldexp(_0, _1)
modf(num a) -> (float, float) :: rt_modf(_0)
copysign(num a, num b) -> float :: rt_copysign(_0, _1)
isnan(num a) -> bool :: rt_isnan(_0)
isinf(num a) -> bool :: rt_isinf(_0)
isfinite(num a) -> bool :: rt_isfinite(_0)
mathremainder(num a, num b) -> float :: rt_ieee_remainder(_0, _1)
sqrt(complex a) -> complex :: rt_complex_sqrt(_0)
exp(complex a) -> complex :: rt_complex_exp(_0)
log(complex a) -> complex :: rt_complex_log(_0)
log10(complex a) -> complex :: rt_complex_log10(_0)
sin(complex a) -> complex :: rt_complex_sin(_0)
cos(complex a) -> complex :: rt_complex_cos(_0)
tan(complex a) -> complex :: rt_complex_tan(_0)
asin(complex a) -> complex :: rt_complex_asin(_0)
acos(complex a) -> complex :: rt_complex_acos(_0)
atan(complex a) -> complex :: rt_complex_atan(_0)
sinh(complex a) -> complex :: rt_complex_sinh(_0)
cosh(complex a) -> complex :: rt_complex_cosh(_0)
tanh(complex a) -> complex :: rt_complex_tanh(_0)
asinh(complex a) -> complex :: rt_complex_asinh(_0)
acosh(complex a) -> complex :: rt_complex_acosh(_0)
atanh(complex a) -> complex :: rt_complex_atanh(_0)
log(scalar a, scalar b) -> complex :: rt_complex_log_base(_0, _1)
angle(num a) -> float :: rt_angle(_0)
angle(complex a) -> float :: rt_angle(_0)
polar(num abs, num angle) -> complex :: rt_polar(_0, _1)
isnan(complex a) -> bool :: rt_complex_isnan(_0)
isinf(complex a) -> bool :: rt_complex_isinf(_0)
isfinite(complex a) -> bool :: rt_complex_isfinite(_0)
"""

_TEXTS = """
format(str self, any... args) -> str :: rt_format(_0, _args)
percentFormat(str self, any... args) -> str :: rt_percent(_0, _args)
__contains__(str self, str key) -> bool :: _1 in _0
__contains__(t[] l, t item) -> bool :: _1 in _0
__contains__(Dict(k, v) dict, k key) -> bool :: _1 in _0
__getitem__(str s, int index) -> str :: rt_character(_0, _1)
__getitem__(t[] list, int idx) -> t :: _0[_1]
__getitem__(Dict(k, v) self, k key) -> v :: _0[_1]
slice(str string, int? start=None, int? end=None, int step=1) -> str :: _0[_1:_2:_3]
slice(t[] l, int? start=None, int? end=None, int step=1) -> t[] :: _0[_1:_2:_3]
upper(str self) -> str :: _0.upper()
lower(str self) -> str :: _0.lower()
capitalize(str self) -> str :: _0.capitalize()
title(str self) -> str :: _0.title()
swapcase(str self) -> str :: _0.swapcase()
isupper(str self) -> bool :: _0.isupper()
islower(str self) -> bool :: _0.islower()
isspace(str self) -> bool :: _0.isspace()
isalnum(str self) -> bool :: _0.isalnum()
isalpha(str self) -> bool :: _0.isalpha()
isdigit(str self) -> bool :: _0.isdigit()
isdecimal(str self) -> bool :: _0.isdecimal()
isnumeric(str self) -> bool :: _0.isnumeric()
istitle(str self) -> bool :: _0.istitle()
isprintable(str self) -> bool :: _0.isprintable()
isidentifier(str self) -> bool :: _0.isidentifier()
center(str self, int width, str fillchar=' ') -> str :: rt_center(_0, _1, _2)
ljust(str self, int width, str fillchar=' ') -> str :: _0.ljust(_1, _2)
rjust(str self, int width, str fillchar=' ') -> str :: _0.rjust(_1, _2)
zfill(str self, int width) -> str :: _0.zfill(_1)
count(str self, str substr, int start=0, int end=-1) -> int :: rt_count(_0, _1, _2, _3)
startswith(str self, str substr, int start=0, int end=-1) -> bool :: rt_startswith(_0, _1, _2, _3)
endswith(str self, str substr, int start=0, int end=-1) -> bool :: rt_endswith(_0, _1, _2, _3)
find(str self, str substr, int start=0, int end=-1) -> int :: rt_find(_0, _1, _2, _3)
rfind(str self, str substr, int start=0, int end=-1) -> int :: rt_rfind(_0, _1, _2, _3)
index(str self, str substr, int start=0, int end=-1) -> int :: rt_str_index(_0, _1, _2, _3)
rindex(str self, str substr, int start=0, int end=-1) -> int :: rt_str_rindex(_0, _1, _2, _3)
expandtabs(str self, int tabsize=8) -> str :: _0.expandtabs(_1)
lstrip(str self, str chars=' \\n\\t\\f\\v') -> str :: _0.lstrip(_1)
rstrip(str self, str chars=' \\n\\t\\f\\v') -> str :: _0.rstrip(_1)
strip(str self, str chars=' \\n\\t\\f\\v') -> str :: _0.strip(_1)
replace(str self, str old, str new, int max=-1) -> str :: _0.replace(_1, _2, _3)
partition(str self, str separator) -> (str, str, str) :: _0.partition(_1)
rpartition(str self, str separator) -> (str, str, str) :: _0.rpartition(_1)
split(str self, str? separator=None, int max=-1) -> str[] :: _0.split(_1, _2)
rsplit(str self, str separator=' ', int max=-1) -> str[] :: _0.rsplit(_1, _2)
splitlines(str self, bool keepends=False) -> str[] :: _0.splitlines(_1)
join(str self, str[] values) -> str :: _0.join(_1)
"""

_CONTAINERS = """
!append(t[] self, t el) -> t[] :: rt_append(_0, _1)
!extend(t[] self, t[] other) -> None :: _0.extend(_1)
!insert(t[] self, int idx, t el) -> None :: _0.insert(_1, _2)
!pop(t[] self, int idx=-1) -> t :: rt_pop(_0, _1)
!remove(t[] self, t el) -> None :: rt_remove(_0, _1)
!reverse(t[] self) -> None :: _0.reverse()
!clear(t[] self) -> None :: _0.clear()
!sort(t[] self, bool reverse=False) -> None :: rt_sort(_0, _1)
!_set_item(t[] l, int idx, t el) -> None :: rt_set_item(_0, _1, _2)
!_set_item(Dict(k, v) l, k idx, v value) -> None :: rt_set_item(_0, _1, _2)
!Delete(t[] self, int idx) -> None :: rt_delete(_0, _1)
!Delete(Dict(k, v) self, k key) -> None :: rt_delete(_0, _1)
!add_(t[] self, t[] b) -> t[] :: rt_extended(_0, _1)
!mul_(t[] l, int n) -> t[] :: rt_repeated(_0, _1)
copy(t[] self) -> t[] :: _0[:]
index(t[] self, t el) -> int :: rt_list_index(_0, _1)
count(t[] self, t el) -> int :: _0.count(_1)
keys(Dict(k, v) self) -> k[] :: list(_0)
values(Dict(k, v) self) -> v[] :: list(_0.values())
items(Dict(k, v) self) -> (k, v)[] :: list(_0.items())
get(Dict(k, v) self, k key) -> v? :: _0.get(_1)
get(Dict(k, v) self, k key, v default_value) -> v :: _0.get(_1, _2)
!pop(Dict(k, v) self, k key) -> v :: _0.pop(_1)
!pop(Dict(k, v) self, k key, v default_value) -> v :: _0.pop(_1, _2)
!popitem(Dict(k, v) self) -> (k, v) :: rt_popitem(_0)
!setdefault(Dict(k, v) self, k key, v default_value) -> v :: _0.setdefault(_1, _2)
!update(Dict(k, v) self, Dict(k, v) to_add) -> None :: _0.update(_1)
!clear(Dict(k, v) self) -> None :: _0.clear()
copy(Dict(k, v) self) -> Dict(k, v) :: dict(_0)
type(Device self) -> str :: _0.type
index(Device self) -> int? :: _0.index
Generator(*, Device? device=None, int? seed=None) -> Generator :: rt_generator(_0, _1)
!manual_seed(Generator self, int seed) -> Generator :: _0.manual_seed(_1)
!seed(Generator self) -> int :: _0.seed()
initial_seed(Generator self) -> int :: _0.initial_seed()
"""

TABLE = _ARITHMETIC + _CONVERSIONS + _MATHEMATICS + _TEXTS + _CONTAINERS

METHODS = {
    "str": frozenset(
        line.partition("(")[0] for line in _TEXTS.split("\n") if "(str " in line and line[0] != "_"
    )
    - {"slice", "percentFormat"},
    "list": frozenset(
        "append extend insert pop remove reverse clear sort copy index count".split()
    ),
    "dict": frozenset(
        "keys values items get pop popitem setdefault update clear copy __contains__".split()
    ),
}
