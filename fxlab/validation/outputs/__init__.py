"""What models compute, on which inputs, and how far two results are apart."""
