"""The code that Inductor generates: run as a stage, and told by kernels."""
