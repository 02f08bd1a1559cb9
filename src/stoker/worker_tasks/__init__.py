"""What the daemon is asked for and does not do itself: each worker task is a process of its own.

A sweep of a million combinations, or the folders of ten thousand runs on a slow file server, would hold
up the queue. An worker task gets its order as JSON on standard input and answers on standard output.
"""
