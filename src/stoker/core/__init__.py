"""Pure rules: no files, no clock, no processes."""
