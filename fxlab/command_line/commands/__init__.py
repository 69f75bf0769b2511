"""The commands, a file each: its function takes the options and returns an answer and an exit code."""
