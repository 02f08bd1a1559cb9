-- GPUs that jobs share.

ALTER TABLE class ADD COLUMN share TEXT;
ALTER TABLE class ADD COLUMN gpu_mem INTEGER;

-- What was set aside of a GPU for an attempt that shares it, recorded before it starts.
CREATE TABLE reservation (
  job      INTEGER NOT NULL,
  number   INTEGER NOT NULL,
  bytes    INTEGER NOT NULL,
  cold     INTEGER NOT NULL,                 -- 1: the whole GPU, for nothing is known of its kind
  PRIMARY KEY (job, number)
) WITHOUT ROWID;

-- What a job has been seen to need that ran out of GPU memory.
CREATE TABLE need (
  job         INTEGER PRIMARY KEY,
  ooms        INTEGER NOT NULL,
  bytes       INTEGER,
  alone       INTEGER NOT NULL,              -- 1: on a GPU of its own
  above_bytes INTEGER NOT NULL               -- on a GPU with more than this
);

-- What is known of a kind of job on a kind of GPU: JSON.
CREATE TABLE profile (
  kind          TEXT NOT NULL,
  model         TEXT NOT NULL,
  facts         BLOB NOT NULL,
  learned_at_us INTEGER NOT NULL,
  PRIMARY KEY (kind, model)
) WITHOUT ROWID;
