"""Fit networks as scikit-learn's estimators with skorch: callbacks, a search, files."""

import numpy as np
import torch
from outcome import place, tell
from sklearn.datasets import make_classification, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import (
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    GradientNormClipping,
    LRScheduler,
)
from skorch.dataset import ValidSplit
from skorch.helper import predefined_split
from torch import nn

torch.manual_seed(0)
x, y = make_classification(80, 10, n_informative=6, n_classes=3, random_state=0)
x, y = x.astype(np.float32), y.astype(np.int64)


class Network(nn.Module):
    """A layer within, and classes."""

    def __init__(self, width=12, dropout=0.2):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(10, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 3)
        )

    def forward(self, x):
        return self.layers(x)


network = NeuralNetClassifier(
    Network,
    criterion=nn.CrossEntropyLoss,
    optimizer=torch.optim.Adam,
    lr=0.02,
    max_epochs=20,
    batch_size=16,
    train_split=ValidSplit(4, stratified=True),
    callbacks=[
        ("f1_macro", EpochScoring("f1_macro", lower_is_better=False)),
        ("schedule", LRScheduler("StepLR", step_size=5, gamma=0.5)),
        ("clip", GradientNormClipping(1.0)),
        ("stop", EarlyStopping(patience=10)),
        ("best", Checkpoint(dirname=place("best"), monitor="valid_loss_best")),
    ],
    verbose=0,
)
network.fit(x, y)
for column in ("train_loss", "valid_loss", "valid_acc", "f1_macro"):
    tell(column, list(network.history[:, column]))
tell("probabilities", network.predict_proba(x[:5]))
network.save_params(f_params=place("params.pt"), f_optimizer=place("optimizer.pt"))
again = network.__class__(**network.get_params()).initialize()
again.load_params(f_params=place("params.pt"), f_optimizer=place("optimizer.pt"))
tell("again", again.predict_proba(x[:5]))
network.load_params(checkpoint=network.get_params()["callbacks__best"])
tell("best", network.predict(x[:20]))

search = GridSearchCV(
    network.set_params(callbacks=None, train_split=False, max_epochs=4),
    {"lr": [0.01, 0.05], "module__width": [6, 12]},
    cv=2,
    scoring="accuracy",
)
search.fit(x, y)
tell("search", search.cv_results_["mean_test_score"])
tell("found", sorted(search.best_params_.items()))

features, wanted = make_regression(60, 5, noise=0.1, random_state=0)
features, wanted = features.astype(np.float32), wanted[:, None].astype(np.float32) / 100
regressor = NeuralNetRegressor(
    nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)),
    optimizer=torch.optim.SGD,
    optimizer__momentum=0.9,
    lr=0.05,
    max_epochs=20,
    train_split=predefined_split(
        torch.utils.data.TensorDataset(*map(torch.tensor, (features, wanted)))
    ),
    verbose=0,
)
line = make_pipeline(StandardScaler(), regressor)
line.fit(features, wanted)
tell("regressor", list(line[-1].history[:, "train_loss"]))
tell("predicted", line.predict(features[:6]))
tell("crossed", cross_val_predict(regressor, features, wanted, cv=2)[:6])
