"""Parse tool calls: a grammar is how a group of model families writes them."""
