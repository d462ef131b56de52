"""Two models and two optimizers of one class, taking turns."""

import torch
from digest import print_digest
from torch import nn

torch.manual_seed(2)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Generator(nn.Sequential):
    pass


class Discriminator(nn.Sequential):
    pass


generator = Generator(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16)).to(DEVICE)
discriminator = Discriminator(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).to(DEVICE)
criterion = nn.BCEWithLogitsLoss()
of_discriminator = torch.optim.Adam(discriminator.parameters())
of_generator = torch.optim.Adam(generator.parameters())
ones, zeros = torch.ones(4, 1, device=DEVICE), torch.zeros(4, 1, device=DEVICE)
for _ in range(14):
    fake = generator(torch.randn(4, 8, device=DEVICE))
    of_discriminator.zero_grad()
    loss = criterion(discriminator(torch.randn(4, 16, device=DEVICE)), ones)
    (loss + criterion(discriminator(fake.detach()), zeros)).backward()
    of_discriminator.step()
    of_generator.zero_grad()
    criterion(discriminator(fake), ones).backward()
    of_generator.step()
print_digest(generator, discriminator)
