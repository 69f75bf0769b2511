"""Models in a run: state kept and restored, graph modules copied, modes checked."""
