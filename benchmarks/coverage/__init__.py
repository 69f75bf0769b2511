"""Coverage: which models trace, at which sizes, compared with eager bit for bit."""
