"""Results of sweeps: collected from the runs' folders, as tables and curves."""
