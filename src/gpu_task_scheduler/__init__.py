"""The import paths of GPU Task Scheduler, on Stoker's engine."""
