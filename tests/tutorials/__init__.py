"""The tutorials as a reader follows them: in an empty clone, with the real programs.  `make tutorials`."""
