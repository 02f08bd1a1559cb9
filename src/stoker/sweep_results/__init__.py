"""What came of the runs of a sweep: collected from their folders, as tables and curves."""
