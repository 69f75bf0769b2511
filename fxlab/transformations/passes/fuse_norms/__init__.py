"""The passes that compute normalisations, which are written as arithmetic, by one function."""
