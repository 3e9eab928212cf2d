"""Fit a LightningModule; save, load and go on."""

import logging
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from outcome import place, tell
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(L.LightningModule):
    def __init__(self, width=32, rate=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, width), torch.nn.GELU(), torch.nn.Linear(width, 3)
        )
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", torch.nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
        }


L.seed_everything(0)
x = torch.randn(96, 8)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
data = TensorDataset(x, y)
module = Classifier()
saver = ModelCheckpoint(dirpath=place("checkpoints"), monitor="val_loss", save_last=True)
trainer = L.Trainer(
    max_epochs=4,
    accelerator="cpu",
    devices=1,
    enable_progress_bar=False,
    enable_model_summary=False,
    log_every_n_steps=1,
    callbacks=[saver, EarlyStopping("val_loss", patience=5)],
    logger=CSVLogger(place("logs")),
    gradient_clip_val=1.0,
    default_root_dir=place("root"),
)
trainer.fit(module, DataLoader(data, batch_size=16), DataLoader(data, batch_size=32))
tell("losses", module.losses)
tell("val_loss", trainer.callback_metrics["val_loss"])
again = Classifier.load_from_checkpoint(saver.best_model_path)
tell("width", again.hparams.width)
tell("predicted", again.eval()(x[:4]))
more = L.Trainer(
    max_epochs=5,
    accelerator="cpu",
    devices=1,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
    enable_checkpointing=False,
)
more.fit(module, DataLoader(data, batch_size=16))
tell("more", module.losses[-6:])
