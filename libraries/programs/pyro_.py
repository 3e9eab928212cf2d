"""Infer by pyro: stochastic variational inference and Hamiltonian Monte Carlo."""

import pyro
import pyro.distributions as dist
import torch
from outcome import place, tell
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal
from pyro.optim import Adam

pyro.set_rng_seed(0)
x = torch.randn(40, 2)
y = x @ torch.tensor([1.5, -0.7]) + 0.3 + 0.1 * torch.randn(40)


def model(x, y=None):
    weight = pyro.sample("weight", dist.Normal(torch.zeros(2), 2.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(0.0, 2.0))
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(x @ weight + bias, sigma), obs=y)


guide = AutoDiagonalNormal(model)
svi = SVI(model, guide, Adam({"lr": 0.03}), Trace_ELBO())
tell("losses", [svi.step(x, y) for _ in range(30)])
tell("median", guide.median()["weight"])
pyro.get_param_store().save(place("params.pt"))
pyro.clear_param_store()
pyro.get_param_store().load(place("params.pt"))
tell("restored", guide.median()["weight"])
trace = pyro.poutine.trace(model).get_trace(x, y)
trace.compute_log_prob()
tell("sites", sorted(name for name in trace.nodes if not name.startswith("_")))
conditioned = pyro.condition(
    model,
    data={
        "weight": torch.tensor([1.5, -0.7]),
        "bias": torch.tensor(0.3),
        "sigma": torch.tensor(0.1),
    },
)
tell("log_prob", pyro.poutine.trace(conditioned).get_trace(x, y).log_prob_sum())
tell("predicted", Predictive(model, guide=guide, num_samples=3)(x)["y"].shape[0])
sampler = MCMC(NUTS(model), num_samples=10, warmup_steps=10, disable_progbar=True)
sampler.run(x, y)
tell("samples", list(sampler.get_samples()["weight"].shape))
