"""A recurrent network with dropout between its layers, fed by a DataLoader with a worker that is slow."""

import time

import torch
from digest import print_digest
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 14

    def __getitem__(self, number):
        time.sleep(0.1)
        return torch.full((5, 8), number / 14.0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, num_layers=2, dropout=0.5, batch_first=True), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


if __name__ == "__main__":
    torch.manual_seed(3)
    model = Tagger().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x in torch.utils.data.DataLoader(Slow(), num_workers=1):
        loss = model(x.to(DEVICE)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.6f}")
    print_digest(model)
