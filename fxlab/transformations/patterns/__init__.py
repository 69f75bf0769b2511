"""Patterns: functions of eager torch that are found in a graph, whatever dialect it is written in."""
