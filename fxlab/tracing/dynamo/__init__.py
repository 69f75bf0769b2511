"""Graphs that Dynamo captures for ``torch.compile``, with the reasons of its graph breaks."""
