"""A training by PyTorch Lightning, which passes a closure to the optimizer, with a validation in between."""

import logging
import warnings

import torch
from digest import print_digest
from torch import nn

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

warnings.filterwarnings("ignore")
for name in ("lightning.pytorch", "pytorch_lightning"):
    logging.getLogger(name).setLevel(logging.ERROR)
torch.manual_seed(13)


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


data = torch.utils.data.TensorDataset(torch.randn(28, 8), torch.randint(4, (28,)))
model = Classifier()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
loader = torch.utils.data.DataLoader(data, batch_size=2)
pl.Trainer(max_epochs=1, accelerator="auto", val_check_interval=7, limit_val_batches=2, **quiet).fit(
    model, loader, loader
)
print_digest(model)
