-- Which part of a job's log was there before its present attempt.
ALTER TABLE job ADD COLUMN log_since INTEGER;
