"""The verbs of the command line: one module for each, named like the verb."""
