"""Models as they are run: their state kept, their graph modules copied, their mode checked."""
