"""Sessions and their passes as files and as Python."""
