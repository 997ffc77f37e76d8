"""The rows of all formats, in files by the grammar of their calls."""
