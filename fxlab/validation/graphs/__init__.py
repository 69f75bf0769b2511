"""What is different between two graphs, without running them."""
