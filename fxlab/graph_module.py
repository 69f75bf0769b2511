"""What every part needs of a ``GraphModule`` and torch does not give: exact pickles, and copies that share tensors."""
