"""Requests that the daemon handles in a separate process, because they would delay the queue.

Examples are a sweep of a million combinations, or the folders of ten thousand runs on a slow file server.
A worker task reads its request as JSON from standard input and writes the answer to standard output.
"""
