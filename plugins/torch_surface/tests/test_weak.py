"""References and dictionaries by identity; small modules that old programs and libraries name."""

import copy
import gc
import importlib
import weakref

import pytest

import tangrad


def weak(t):
    return importlib.import_module(f"{t.__name__}.utils.weak")


def dictionary(t):
    return weak(t).WeakTensorKeyDictionary()


def half(key):
    """Yield a pair, and fail before the next."""
    yield key, 7
    raise KeyError("no second pair")


USES = {
    "by identity": lambda t, d, a, b: [d[a], d[b], len(d), a in d, t.ones(2) in d, 3 in d],
    "written again": lambda t, d, a, b: [d.__setitem__(a, 5), d[a], len(d)],
    "defaults": lambda t, d, a, b: [d.get(t.ones(2), 7), d.setdefault(a, 9), d.pop(a), len(d)],
    "taken away": lambda t, d, a, b: [d.__delitem__(a), a in d],
    "missing": lambda t, d, a, b: d[t.ones(2)],
    "items": lambda t, d, a, b: [(k is a, v) for k, v in d.items()],
    "references": lambda t, d, a, b: [r() is a for r in d.keyrefs()],
    "copies": lambda t, d, a, b: [d.copy() == d, (d | {a: 3})[a], d[a]],
    "beside another": lambda t, d, a, b: [({b: 8, a: 3} | d)[b], type({a: 3} | d) is type(d)],
    "deep copies": lambda t, d, a, b: [copy.deepcopy(d) == d, copy.deepcopy(d)[b]],
    "values of copies": lambda t, d, a, b: [d.__setitem__(a, [1]), copy.deepcopy(d)[a] is d[a]],
    "no references": lambda t, d, a, b: d.__setitem__(3, 4),
}


@pytest.mark.parametrize("use", USES)
def test_dictionaries_hold_tensors_by_identity(agree, use):
    def program(t):
        d, a, b = dictionary(t), t.ones(2), t.ones(2)
        d[a], d[b] = 1, 2
        return USES[use](t, d, a, b)

    agree(program, message=False)


def test_an_update_that_fails_takes_nothing(agree):
    def program(t):
        d, a = dictionary(t), t.ones(2)
        d[a] = 1
        with pytest.raises(KeyError, match="second"):
            d.update(half(a))
        return d[a]

    agree(program)


def test_entries_die_with_their_keys(agree):
    def program(t):
        d, a, b = dictionary(t), t.ones(2), t.ones(2)
        d[a], d[b] = 1, 2
        del a
        gc.collect()
        return len(d), list(d.values())

    agree(program)


def test_references_are_equal_for_one_object_only(agree):
    def program(t):
        a, b = t.ones(2), t.ones(2)
        make = weak(t).WeakIdRef
        first, second, other = make(a), make(a), make(b)
        told = [first == second, first == other, len({first, second, other}), first() is a]
        del a
        gc.collect()
        return told, first() is None, first == second, first == first

    agree(program)


def test_a_dictionary_dies_before_its_keys():
    d, key = dictionary(tangrad), tangrad.ones(2)
    d[key] = 1
    gone = weakref.ref(d)
    del d
    gc.collect()
    assert gone() is None
    del key


def test_references_to_tensors(agree):
    def program(t):
        a = t.ones(2)
        reference = weak(t).TensorWeakRef(a)
        there = reference() is a
        del a
        gc.collect()
        return there, reference()

    agree(program)
    with pytest.raises(TypeError, match="expects a tensor"):
        weak(tangrad).TensorWeakRef(3)


def test_switches_of_old_warnings_are_kept(agree):
    def program(t):
        place = importlib.import_module(f"{t.__name__}.utils.backcompat")
        before = place.broadcast_warning.enabled
        place.broadcast_warning.enabled = False
        return before, place.keepdim_warning.enabled

    agree(program)


def test_public_objects_are_told_of_a_module(agree):
    def program(t):
        class Mine:
            pass

        t.utils.set_module(Mine, "here")
        name = Mine.__module__
        t.utils.set_module(Mine, 3)
        return name

    agree(program)


def test_classes_that_wrap_tensors_are_told_and_changed(agree):
    def program(t):
        place = importlib.import_module(f"{t.__name__}.utils._python_dispatch")

        class Wrapping(t.Tensor):
            @staticmethod
            def __new__(cls, inner):
                made = t.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
                made.inner = inner
                return made

            def __tensor_flatten__(self):
                return ["inner"], None

            @staticmethod
            def __tensor_unflatten__(inner, context, size, stride):
                return Wrapping(inner["inner"])

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return NotImplemented

        x = Wrapping(t.ones(3))
        told = [place.is_traceable_wrapper_subclass(v) for v in (x, t.ones(3), 3)]
        changed = place.transform_subclass(x, lambda name, v: v * 2)
        return told, type(changed).__name__, changed.inner

    agree(program)


def test_an_active_dispatch_mode_is_told(agree):
    def program(t):
        place = importlib.import_module(f"{t.__name__}.utils._python_dispatch")

        class Mode(place.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))

        before = place.is_in_torch_dispatch_mode()
        with Mode():
            return before, place.is_in_torch_dispatch_mode()

    agree(program)
