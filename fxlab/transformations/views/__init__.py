"""Views of nodes: a call as passes see it, in any dialect.

The same linear layer is a ``call_module`` of ``nn.Linear``, ``torch.nn.functional.linear(x, w, b)``,
``aten.linear`` once it is exported, and ``aten.addmm`` with a transposed weight once it is decomposed. A view
is a small value with the operands of the call; it is ``None`` for any other node.
"""
