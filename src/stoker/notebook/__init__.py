"""`%load_ext stoker`: cells of a notebook as jobs of the queue.

Only `extension.py` and `status_line.py` import IPython.
"""
