"""Options of Inductor that its passes read."""
