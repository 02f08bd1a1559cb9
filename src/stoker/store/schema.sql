-- A job's `state` moves only as core/lifecycle.py's table says: every UPDATE of it names the states
-- it may come from, so that the database refuses what the table does not know. (A CHECK with the list
-- of states would cost two microseconds in every statement: SQLite builds the list anew each time.)

CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;

-- Jobs that ask for the same are one class: the queue is searched class by class.
CREATE TABLE class (
  id        INTEGER PRIMARY KEY,
  slots     INTEGER NOT NULL,
  timeout_s REAL,
  project   TEXT,
  share     TEXT,                            -- how it shares its GPU: auto, always:4; NULL: not at all
  gpu_mem   INTEGER,                         -- bytes that it says it needs of each GPU
  place     TEXT,                            -- on which nodes and kinds of GPU it may run: JSON; NULL: any
  cpus      INTEGER,                         -- CPUs that it says it needs
  mem_bytes INTEGER                          -- RAM that it says it needs
);

-- A job, with its present or last attempt.
CREATE TABLE job (
  id            INTEGER PRIMARY KEY,
  command       BLOB NOT NULL,
  class         INTEGER NOT NULL REFERENCES class (id),
  priority      INTEGER NOT NULL DEFAULT 0,
  rank          INTEGER NOT NULL DEFAULT 0,
  state         TEXT NOT NULL,
  attempt       INTEGER NOT NULL DEFAULT 0,  -- attempts claimed so far
  slots         TEXT,                        -- where it runs: '0', '0+1', or '0,1' for two slots; 'h1/0'
                                             -- on a node of a cluster, 'h1/' on one without GPU
  pid           INTEGER,
  started_at_us INTEGER,                     -- microseconds of the Unix epoch, as all times
  ended_at_us   INTEGER,
  status        INTEGER,                     -- wait status; NULL if there never was a process
  reason        TEXT,                        -- why it did not succeed
  cpu_us        INTEGER,
  max_rss_kb    INTEGER,
  -- What follows is the daemon's; a foreground run leaves it empty.
  submission    INTEGER REFERENCES submission (id),
  form          TEXT CHECK (form IN ('argv', 'script')),  -- NULL: the command is a shell line
  name          TEXT,
  log           BLOB,                        -- a path as given, placeholders included
  retries       INTEGER,                     -- how often a failure is tried again
  tries         INTEGER,                     -- attempts since it was added or retried by hand
  fresh         INTEGER,                     -- 1: run in the folder itself, not in the snapshot
  ending        TEXT,                        -- why it is being ended, until it is claimed again: 'kill: …'
  grace_s       REAL,                        -- and how long it has from the signal to KILL, if not as it asks
  options       BLOB,                        -- how it is ended and may be pushed out: JSON, if not as usual
  begin_at_us   INTEGER,                     -- not before
  held          INTEGER,                     -- 1: not before it is released
  forced        INTEGER,                     -- 1: the next to start, whatever the queue's order and limits
  stopped_at_us INTEGER,                     -- since when it is paused
  stopped_us    INTEGER,                     -- how long it was paused before
  -- Of every kind of queue again.
  failure       TEXT,                        -- of what class its failure was
  gpu_use       TEXT,                        -- what it used of its GPUs: JSON, if it was seen at all
  log_since     INTEGER                      -- bytes of its log that are of earlier attempts; NULL: none
);
CREATE INDEX job_waiting ON job (class, priority DESC, rank, id) WHERE state = 'waiting';
CREATE INDEX job_order ON job (priority DESC, rank, id) WHERE state = 'waiting';
CREATE INDEX job_undone ON job (state, id) WHERE reason IS NOT NULL;
CREATE INDEX job_begin ON job (begin_at_us) WHERE begin_at_us IS NOT NULL AND state = 'delayed';
CREATE INDEX job_forced ON job (id) WHERE forced IS NOT NULL;
CREATE INDEX job_special ON job (id) WHERE options IS NOT NULL AND state = 'waiting';
CREATE INDEX job_name ON job (name, id) WHERE name IS NOT NULL;
CREATE INDEX job_ended ON job (ended_at_us, id) WHERE submission IS NOT NULL AND ended_at_us IS NOT NULL;

-- Attempts that another one has followed.
CREATE TABLE earlier_attempt (
  job           INTEGER NOT NULL REFERENCES job (id),
  number        INTEGER NOT NULL,
  outcome       TEXT NOT NULL,
  slots         TEXT,
  pid           INTEGER,
  started_at_us INTEGER,
  ended_at_us   INTEGER,
  status        INTEGER,
  reason        TEXT,
  cpu_us        INTEGER,
  max_rss_kb    INTEGER,
  failure       TEXT,
  gpu_use       TEXT,
  PRIMARY KEY (job, number)
) WITHOUT ROWID;

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
