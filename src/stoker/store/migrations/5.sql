-- Jobs that are to run on certain nodes, or on certain kinds of GPUs.
ALTER TABLE class ADD COLUMN place TEXT;
