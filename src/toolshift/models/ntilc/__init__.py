"""NTILC: dispatch of an intent to a tool by nearest neighbour in a space that knows signatures."""
