"""Small models, each with inputs and a loss, that training steps are traced of."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    """A batch norm, a write in place, a dropout, a tied, a frozen and an unused parameter."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.act, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.3)
        self.head, self.tied, self.unused = nn.Linear(4, 5), nn.Linear(4, 5), nn.Linear(2, 2)
        self.tied.weight = self.head.weight
        self.conv.bias.requires_grad_(False)

    def forward(self, x, y):
        h = self.act(self.norm(self.conv(x)))
        h = self.drop(h.mean((2, 3)))
        return F.cross_entropy(self.head(h) + self.tied(h), y)


def net():
    torch.manual_seed(0)
    return Net()


def batches(count, size=2):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(size, 3, 8, 8, generator=generator), torch.arange(size) % 5) for _ in range(count)]


def own_loss(output):
    return output


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))


class Blocks(nn.Module):
    """Equal blocks in a row, of which some are checkpointed."""

    def __init__(self, count=3, checkpointed=()):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(count)])
        self.last = nn.Linear(8, 2)
        self.checkpointed = checkpointed

    def forward(self, x):
        x = self.first(x)
        for place, block in enumerate(self.blocks):
            if place in self.checkpointed:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.last(x)


def blocks(count=3, checkpointed=()):
    torch.manual_seed(0)
    return Blocks(count, checkpointed), torch.randn(5, 4)


class LayerDrop(nn.Module):
    """Leaves layers out at random."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            if torch.rand([]) < 0.5:
                x = x + layer(x)
        return x * self.layers[0].weight.sum()


def squared(output):
    return output.square().mean()
