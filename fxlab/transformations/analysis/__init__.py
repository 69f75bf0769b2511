"""What is known of a graph before it is changed: who writes into what, what is pure, what rounding does."""
