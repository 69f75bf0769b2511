"""Values as models hold and return them: nested containers, and the tensors inside them."""
