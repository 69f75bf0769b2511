"""Two models on a whole data set: the verdict over all batches, and whether they decide alike."""
