"""Calls with the factors in front, which programs of before 2020 make."""

import warnings

import pytest

import tangrad
from tangrad.dispatch import old_forms

OLD = {
    "add": lambda t, v, m: t.add(v, 2, v + 1),
    "add_": lambda t, v, m: v.add_(2, v + 1),
    "add with out": lambda t, v, m: t.add(v, 2, v + 1, out=t.empty(2)),
    "sub_": lambda t, v, m: v.sub_(0.5, v + 1),
    "addcmul": lambda t, v, m: t.addcmul(v, 3, v + 1, v),
    "addcmul_": lambda t, v, m: v.addcmul_(3, v + 1, v + 2),
    "addcdiv_": lambda t, v, m: v.addcdiv_(-0.5, v + 1, v + 2),
    "addmm": lambda t, v, m: t.addmm(2, m, 3, m, m),
    "addmm with one factor": lambda t, v, m: t.addmm(2, m, m, m),
    "addmm_": lambda t, v, m: m.addmm_(2, 3, m + 1, m + 2),
    "addmv": lambda t, v, m: t.addmv(2, v, 3, m, v),
    "addr_": lambda t, v, m: m.addr_(2, v, v),
    "addbmm": lambda t, v, m: t.addbmm(2, m, m[None], m[None]),
    "baddbmm": lambda t, v, m: t.baddbmm(2, m[None], 3, m[None], m[None]),
    "a factor too many": lambda t, v, m: t.addcmul(v, 1, 2, v, v),
    "a factor between": lambda t, v, m: t.addcmul(v, v, 2, v),
    "a tensor too few": lambda t, v, m: t.addmm(2, m, 3, m),
}


@pytest.mark.parametrize("name", OLD)
def test_factors_may_stand_in_front_as_in_pytorch(agree, name):
    def program(t):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return OLD[name](t, t.tensor([1.0, 2.0]), t.tensor([[1.0, 2.0], [3.0, 5.0]]))

    agree(program, message=False)


def test_an_old_form_has_the_gradient_of_the_new(monkeypatch):
    monkeypatch.setattr(old_forms, "_told", True)
    x = tangrad.ones(2, requires_grad=True)
    tangrad.addcmul(x, 3, x, x).sum().backward()
    assert x.grad.tolist() == [7, 7]


def test_an_old_form_is_told_once(monkeypatch):
    monkeypatch.setattr(old_forms, "_told", False)
    x = tangrad.ones(2)
    with pytest.warns(UserWarning, match=r"add_ is deprecated.*alpha=2"):
        x.add_(2, tangrad.ones(2))
    x.add_(2, tangrad.ones(2))
    assert x.tolist() == [5, 5]
