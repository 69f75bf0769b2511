"""A rewrite as the page shows it."""

import torch
from torch import nn

import fxlab
from fxlab.view_model.step_through import shown_rewrite


def test_of_many_lines_the_first_are_shown_and_the_others_counted():
    class Sines(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("angle", torch.ones(2))

        def forward(self, x):
            value = self.angle
            for _ in range(60):
                value = value.sin()
            return x + value

    session = fxlab.Session(Sines().eval(), torch.ones(2), passes=[fxlab.FoldConstants()])
    session.apply("fold-constants")
    (step,) = session.rewrites("fold-constants")
    shown = shown_rewrite(session, session.passes[0], 1)
    count = len(step.before)
    assert shown["before"] == [*[*step.before.values()][:12], f"... and {count - 12} lines more"]
    assert shown["after"] == [*step.after.values()]
