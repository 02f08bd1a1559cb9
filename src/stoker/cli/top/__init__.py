"""`stoker top`: GPUs, jobs, sweeps and logs on a terminal. Only `app.py` imports Textual."""
