"""The passes that fuse what the result of a layer is multiplied by, or added to, into its weights."""
