"""Interactive jobs: the processes that give a job a terminal or a Jupyter server; standard library only."""
