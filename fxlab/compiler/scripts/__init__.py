"""What unchanged scripts compile."""
