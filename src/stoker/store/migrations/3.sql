-- Why attempts failed, and what they used of their GPUs.
ALTER TABLE job ADD COLUMN failure TEXT;
ALTER TABLE job ADD COLUMN gpu_use TEXT;
ALTER TABLE earlier_attempt ADD COLUMN failure TEXT;
ALTER TABLE earlier_attempt ADD COLUMN gpu_use TEXT;
