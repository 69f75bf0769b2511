"""What is done about each kind of call that a model makes while it is recorded."""
