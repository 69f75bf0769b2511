"""Views of nodes: what a call is to a pass, whichever dialect it is written in.

The same linear layer is a ``call_module`` of ``nn.Linear``, ``torch.nn.functional.linear(x, w, b)``,
``aten.linear`` once it is exported, and ``aten.addmm`` with a transposed weight once it is decomposed. A view
is a small value that says what the call computes with; it is ``None`` for what is nothing of the kind.
"""
