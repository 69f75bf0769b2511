"""A model in any form, a name of one among them, taken in: the only room that reads texts as models."""
