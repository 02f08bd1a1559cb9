"""`stoker mcp`: the queue as tools for coding agents, over the Model Context Protocol.

Only `server.py` imports the `mcp` package.
"""
