-- From the first schema, of foreground runs alone, to the one that the daemon shares.

-- A class was unique by its slots and time limit alone.
CREATE TABLE new_class (
  id        INTEGER PRIMARY KEY,
  slots     INTEGER NOT NULL,
  timeout_s REAL,
  project   TEXT
);
INSERT INTO new_class SELECT id, slots, timeout_s, NULL FROM class;
DROP TABLE class;
ALTER TABLE new_class RENAME TO class;

ALTER TABLE job ADD COLUMN submission INTEGER REFERENCES submission (id);
ALTER TABLE job ADD COLUMN form TEXT CHECK (form IN ('argv', 'script'));
ALTER TABLE job ADD COLUMN name TEXT;
ALTER TABLE job ADD COLUMN log BLOB;
ALTER TABLE job ADD COLUMN retries INTEGER;
ALTER TABLE job ADD COLUMN tries INTEGER;
ALTER TABLE job ADD COLUMN fresh INTEGER;
ALTER TABLE job ADD COLUMN ending TEXT;
ALTER TABLE job ADD COLUMN grace_s REAL;
ALTER TABLE job ADD COLUMN options BLOB;
ALTER TABLE job ADD COLUMN begin_at_us INTEGER;
ALTER TABLE job ADD COLUMN held INTEGER;
ALTER TABLE job ADD COLUMN forced INTEGER;
ALTER TABLE job ADD COLUMN stopped_at_us INTEGER;
ALTER TABLE job ADD COLUMN stopped_us INTEGER;
CREATE INDEX job_order ON job (priority DESC, rank, id) WHERE state = 'waiting';
CREATE INDEX job_undone ON job (state, id) WHERE reason IS NOT NULL;
CREATE INDEX job_begin ON job (begin_at_us) WHERE begin_at_us IS NOT NULL AND state = 'delayed';
CREATE INDEX job_forced ON job (id) WHERE forced IS NOT NULL;
CREATE INDEX job_special ON job (id) WHERE options IS NOT NULL AND state = 'waiting';
CREATE INDEX job_name ON job (name, id) WHERE name IS NOT NULL;
CREATE INDEX job_ended ON job (ended_at_us, id) WHERE submission IS NOT NULL AND ended_at_us IS NOT NULL;

-- Which jobs a job waits for: their success, or (any) just their end.
CREATE TABLE dependency (
  needed INTEGER NOT NULL,
  job    INTEGER NOT NULL,
  any    INTEGER NOT NULL,
  PRIMARY KEY (needed, job)
) WITHOUT ROWID;
CREATE INDEX dependency_of ON dependency (job);

-- What the jobs of one request have in common. Its ids are reserved at once, and its jobs added in
-- slices, so that a large one does not stop the others; a repeated request goes on where it ended.
-- Its number, as an environment's, is given once: what was remembered under it stays true.
CREATE TABLE submission (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  request_id      TEXT NOT NULL UNIQUE,
  first_job       INTEGER NOT NULL,
  jobs            INTEGER NOT NULL,
  added           INTEGER NOT NULL DEFAULT 0,
  submitted_at_us INTEGER NOT NULL,
  environment     INTEGER NOT NULL REFERENCES environment (id),
  cwd             BLOB NOT NULL,
  shell           TEXT,
  snapshot        TEXT,
  git_commit      TEXT,
  git_dirty       INTEGER,
  user            TEXT,
  host            TEXT,
  linger          INTEGER NOT NULL DEFAULT 0
);

-- Environments are long and mostly the same: each is kept once. NAME=value entries, each ending in NUL.
CREATE TABLE environment (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  digest BLOB NOT NULL UNIQUE,
  block  BLOB NOT NULL
);

-- How many jobs stand where, kept with every commit: to count a million takes too long.
CREATE TABLE tally (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE config (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- How long jobs of a kind take, learned from those that have succeeded.
CREATE TABLE kind (
  name          TEXT PRIMARY KEY,
  jobs          INTEGER NOT NULL,
  mean_s        REAL NOT NULL,
  learned_at_us INTEGER NOT NULL
) WITHOUT ROWID;

-- A sweep is what a folder calls by one name; its runs are jobs with an identity and a folder of their
-- own. A row outlives its job where that was done: what has succeeded is not run again.
CREATE TABLE sweep (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  cwd  BLOB NOT NULL,
  UNIQUE (name, cwd)
);
CREATE TABLE sweep_run (
  job      INTEGER PRIMARY KEY,
  sweep    INTEGER NOT NULL REFERENCES sweep (id),
  identity BLOB NOT NULL,
  dir      BLOB NOT NULL,
  params   TEXT,                             -- JSON, until the job is forgotten
  done     INTEGER                           -- 1: its job was done, and is forgotten
);
CREATE INDEX sweep_run_sweep ON sweep_run (sweep, job);
