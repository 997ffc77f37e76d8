"""Parse tool calls: each grammar is the way in which a group of model families writes them."""
