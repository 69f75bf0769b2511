"""Patterns: functions of eager torch that are found in a graph of any dialect."""
