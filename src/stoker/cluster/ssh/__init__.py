"""Setting up machines over ssh: `stoker cluster add`, `remove` and `upgrade`."""
