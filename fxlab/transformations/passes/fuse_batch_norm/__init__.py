"""The passes that fuse a batch norm into the layer before or behind it."""
