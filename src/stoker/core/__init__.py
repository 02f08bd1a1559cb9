"""Pure rules of scheduling: no files, no clock, no processes."""
