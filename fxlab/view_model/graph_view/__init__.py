"""The graphs on the screen: stages, panes, what is opened, marked and coloured."""
