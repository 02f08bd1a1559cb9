"""Jobs in containers: the command line of the engine that runs a job in an image."""
