"""Text from a small GPT without an optimizer: a prompt, then one token after the other; its cache is left out."""

import torch
from digest import print_digest
from torch import nn

torch.manual_seed(5)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Decoder(nn.Module):
    """Keeps a running state in the place of a cache of keys and values."""

    def __init__(self):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(32, 16), nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
        self.head = nn.Linear(16, 32)

    def forward(self, input_ids, state=None):
        x = self.embedding(input_ids).cumsum(1) + (0 if state is None else state)
        state = x[:, -1:]
        for layer in self.layers:
            x = x + layer(x).tanh()
        return self.head(x[:, -1]), state


model = Decoder().to(DEVICE).eval()
with torch.inference_mode():
    for _ in range(3):
        tokens, state = torch.randint(32, (2, 7), device=DEVICE), None
        words = []
        for _ in range(6):
            logits, state = model(input_ids=tokens, state=state)
            tokens = torch.multinomial(logits.softmax(-1), 1)
            words.append(tokens[:, 0].tolist())
        print(words)
print_digest(model)
