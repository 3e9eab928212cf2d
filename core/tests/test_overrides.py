"""Questions about what `__torch_function__` may take over."""

import pickle

import pytest
import torch

import tangrad

NAMES = {
    "a function": lambda t: t.logsumexp,
    "a method": lambda t: t.Tensor.add_,
    "of linalg": lambda t: t.linalg.norm,
    "of fft": lambda t: t.fft.fft,
    "a factory": lambda t: t.ones,
    "of nn.functional": lambda t: t.nn.functional.cross_entropy,
    "a stranger": lambda t: len,
    "a module": lambda t: t.nn.Linear,
}


@pytest.mark.parametrize("what", NAMES)
def test_functions_have_the_names_that_evaluate_to_them(agree, what):
    agree(lambda t: t.overrides.resolve_name(NAMES[what](t)))


def test_what_a_handler_got_has_a_name():
    seen = []

    class Watched(tangrad.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(tangrad.overrides.resolve_name(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = tangrad.ones(2, 2).as_subclass(Watched)
    tangrad.add(x, 1), x.max(0), x.add_(1), tangrad.linalg.det(x), x.add(1)
    expected = ["add", "Tensor.max", "Tensor.add_", "linalg.det", "Tensor.add"]
    assert [s for s in seen if s] == [f"tangrad.{name}" for name in expected]
    assert tangrad.overrides.resolve_name([]) is None


def test_a_method_is_told_from_the_function_that_computes_the_same(agree):
    def program(t):
        log = []

        class Logging(t.overrides.BaseTorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                log.append([func is f for f in (t.unbind, t.Tensor.unbind, t.Tensor.add)])
                log.append(t.overrides.is_tensor_method_or_property(func))
                return super().__torch_function__(func, types, args, kwargs)

        x = t.ones(2, 2)
        with Logging():
            parts = [t.unbind(x), x.unbind(), t.Tensor.unbind(x, 1), (x + 1, x.shape)]
        return log, len(parts)

    agree(program)


def test_methods_are_kept_by_their_names(agree):
    agree(lambda t: pickle.loads(pickle.dumps(t.Tensor.add)) is t.Tensor.add)
    for told in ("__doc__", "__name__", "__signature__", "overloads"):
        assert getattr(tangrad.Tensor.sum, told) == getattr(tangrad.sum, told)
    assert tangrad.Tensor.exp.kernels() == tangrad.exp.kernels()
    assert tangrad.Tensor.multiply is tangrad.Tensor.mul


@pytest.mark.parametrize("name", ["add", "sum", "max", "relu_", "expand"])
def test_methods_refuse_what_their_functions_refuse(name):
    told = []
    for called in (getattr(tangrad.Tensor, name), getattr(tangrad, name, None)):
        if called is not None:
            with pytest.raises(TypeError) as raised:
                called(tangrad.ones(2), nothing=1)
            told.append(str(raised.value))
    assert len(set(told)) == 1


def test_a_class_is_taken_off_by_as_subclass(agree):
    def program(t):
        class Named(t.Tensor):
            pass

        x = t.ones(2, requires_grad=True)
        plain = (x * 2).as_subclass(Named).as_subclass(t.Tensor)
        plain.sum().backward()
        with t.overrides.BaseTorchFunctionMode():
            again = plain.as_subclass(Named)
        return type(plain) is t.Tensor, type(again).__name__, x.grad.tolist()

    agree(program)


def test_what_is_kept_on_a_tensor_is_not_wrapped():
    kept = tangrad.overrides.get_default_nowrap_functions()
    assert {tangrad.Tensor.grad.__get__, tangrad.Tensor._base.__get__} <= kept


def test_ops_can_be_overridden_by_function_and_by_method():
    found = tangrad.overrides.get_overridable_functions()
    assert tangrad.add in found[tangrad]
    assert tangrad.Tensor.add in found[tangrad.Tensor]
    assert tangrad.Tensor.exp_ in found[tangrad.Tensor]
    for theirs, ours in ((torch.fft, tangrad.fft), (torch.linalg, tangrad.linalg)):
        wanted = {f.__name__ for f in torch.overrides.get_overridable_functions()[theirs]}
        names = {name.rpartition("_")[2] for name in wanted}
        assert names <= {op.__name__.rpartition("_")[2] for op in found[ours]}
    assert len not in found[tangrad]


def test_the_base_of_modes_lets_calls_pass(agree):
    def program(t):
        log = []

        class Logging(t.overrides.BaseTorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                log.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs)

        with Logging():
            made = t.add(t.ones(2), 1)
        return log, made

    agree(program)


def scaled(t, a, b):
    overrides = t.overrides
    if overrides.has_torch_function((a, b)):
        return overrides.handle_torch_function(lambda *args: scaled(t, *args), (a, b), a, b)
    return a * b + 1


def test_a_handler_calls_past_itself_and_sees_the_calls_inside(agree):
    def program(t):
        depths = []

        class Logging(t.Tensor):
            depth = 0

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                depths.append((cls.depth, getattr(func, "__name__", "")))
                cls.depth += 1
                result = t.overrides.redispatch_function(func, types, args, kwargs)
                cls.depth -= 1
                return result

        x, y = (t.full((2,), value).as_subclass(Logging) for value in (3.0, 4.0))
        return scaled(t, x, y), [depth for depth, _ in depths], t.sin(x), len(depths)

    agree(program)


def test_a_mode_calls_past_itself_and_sees_the_calls_inside(agree):
    def program(t):
        depths = []

        class Logging(t.overrides.TorchFunctionMode):
            depth = 0

            def __torch_function__(self, func, types, args=(), kwargs=None):
                depths.append(self.depth)
                self.depth += 1
                with self:
                    result = t.overrides.redispatch_function(func, types, args, kwargs)
                self.depth -= 1
                return result

        x = t.full((2,), 3.0)
        with Logging():
            return scaled(t, x, x).tolist(), depths

    agree(program)


def test_a_subclass_is_made_before_its_handler_sees_calls(agree):
    def program(t):
        class Slotted(t.Tensor):
            __slots__ = ["calls"]

            def __new__(cls, data, log=None):
                made = t.Tensor._make_subclass(cls, data, require_grad=data.requires_grad)
                made.calls = [] if log is None else log
                return made

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log = next(a.calls for a in args if isinstance(a, cls))
                log.append(func.__name__)
                result = t.overrides.redispatch_function(func, types, args, kwargs)
                plain = isinstance(result, t.Tensor) and not isinstance(result, cls)
                return cls(result, log) if plain else result

        x = t.nn.Parameter(Slotted(t.ones(2)))
        y = x + t.ones(2)
        return type(y).__name__, x.calls is y.calls, y.calls[-1]

    agree(program)
