"""Looking for nodes and groups: queries, and the index that answers them."""
