"""The page of an inspector: its code, the messages that go to and fro, and how a person looks at it."""
