"""Programs that ``torch.export`` captured, and files of them, as graph modules."""
