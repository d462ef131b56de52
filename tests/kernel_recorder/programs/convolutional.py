"""A residual network with batch normalization, trained with a scheduler and autocast."""

import torch
from digest import print_digest
from torch import nn

torch.manual_seed(9)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x):
        return (x + self.bn(self.conv(x))).relu()


model = nn.Sequential(
    nn.Conv2d(3, 8, 3), Residual(), Residual(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
)
model.to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 14)
for _ in range(14):
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss = model(torch.randn(2, 3, 12, 12, device=DEVICE)).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
print_digest(model)
