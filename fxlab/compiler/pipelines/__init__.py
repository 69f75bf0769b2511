"""Pipelines of passes that others have written, recorded while they run."""
