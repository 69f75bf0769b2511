"""A marimo notebook with an inspector in it."""

import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import torch
    from torch import fx, nn

    import fxlab

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.query(x) * self.key(x)

    torch.manual_seed(0)
    fxlab.inspect(fxlab.Session(fx.symbolic_trace(nn.Sequential(Block(), nn.Tanh())), (torch.ones(2, 8),)))
    return


if __name__ == "__main__":
    app.run()
