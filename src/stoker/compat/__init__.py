"""Doors for the users of older tools: their command lines, Stoker's engine behind them."""
