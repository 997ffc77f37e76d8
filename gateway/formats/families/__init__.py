"""One row per format, in files by the grammar that their calls have."""
