"""Models that several processes run together: ranks, layouts, collectives."""
