"""Model -> GraphModule, by recording one run."""
