"""Transforms by name, as functions of a framework: what is tested of each."""

from __future__ import annotations

import numpy as np

# name -> (the transform, the shape of arguments, what makes arguments of normal numbers)
TRANSFORMS = {
    "abs": (lambda f: f.d.AbsTransform(), (3,), None),
    "affine": (lambda f: f.d.AffineTransform(1.0, -2.0), (3,), None),
    "affine of events": (
        lambda f: f.d.AffineTransform(f.t([1.0, 2.0]), f.t([-2.0, 3.0]), event_dim=1),
        (3, 2),
        None,
    ),
    "compose": (
        lambda f: f.d.ComposeTransform(
            [f.d.AffineTransform(1.0, -2.0), f.d.ExpTransform(), f.d.PowerTransform(f.t(2.0))]
        ),
        (3,),
        None,
    ),
    "compose to events": (
        lambda f: f.d.ComposeTransform(
            [f.d.AffineTransform(1.0, -2.0), f.d.StickBreakingTransform()]
        ),
        (2, 3),
        None,
    ),
    "identity": (lambda f: f.d.identity_transform, (3,), None),
    "exp": (lambda f: f.d.ExpTransform(), (3,), None),
    "inverse": (lambda f: f.d.ExpTransform().inv, (3,), np.abs),
    "power": (lambda f: f.d.PowerTransform(f.t(-1.5)), (3,), np.abs),
    "sigmoid": (lambda f: f.d.SigmoidTransform(), (3,), None),
    "softplus": (lambda f: f.d.SoftplusTransform(), (3,), None),
    "tanh": (lambda f: f.d.TanhTransform(), (3,), None),
    "softmax": (lambda f: f.d.SoftmaxTransform(), (2, 3), None),
    "stick breaking": (lambda f: f.d.StickBreakingTransform(), (2, 3), None),
    "correlations": (lambda f: f.d.CorrCholeskyTransform(), (2, 6), None),
    "lower Cholesky": (lambda f: f.d.LowerCholeskyTransform(), (2, 3, 3), np.tril),
    "positive definite": (lambda f: f.d.PositiveDefiniteTransform(), (2, 3, 3), np.tril),
    "reshape": (lambda f: f.d.ReshapeTransform((2, 3), (6,)), (4, 2, 3), None),
    "independent": (lambda f: f.d.IndependentTransform(f.d.ExpTransform(), 1), (4, 3), None),
    "distribution function": (
        lambda f: f.d.CumulativeDistributionTransform(f.d.Normal(f.t(1.0), f.t(2.0))),
        (4, 3),
        None,
    ),
    "cat": (
        lambda f: f.d.CatTransform(
            [f.d.ExpTransform(), f.d.AffineTransform(1.0, 2.0)], dim=0, lengths=[1, 3]
        ),
        (4, 3),
        None,
    ),
    "cat of events": (
        lambda f: f.d.CatTransform(
            [f.d.IndependentTransform(f.d.ExpTransform(), 1), f.d.AffineTransform(1.0, 2.0)],
            dim=-1,
            lengths=[1, 3],
        ),
        (3, 4),
        None,
    ),
    "stack": (
        lambda f: f.d.StackTransform([f.d.ExpTransform(), f.d.AffineTransform(1.0, 2.0)], dim=1),
        (4, 2),
        None,
    ),
}
