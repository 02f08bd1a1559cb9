-- A queue as the version with schema 4 left it: one job runs, two wait.
BEGIN TRANSACTION;
CREATE TABLE class (
  id        INTEGER PRIMARY KEY,
  slots     INTEGER NOT NULL,
  timeout_s REAL,
  project   TEXT,
  share     TEXT,                            -- how it shares its GPU: auto, always:4; NULL: not at all
  gpu_mem   INTEGER                          -- bytes that it says it needs of each GPU
);
INSERT INTO "class" VALUES(1,1,NULL,NULL,NULL,NULL);
INSERT INTO "class" VALUES(2,2,3600.0,'vision','auto',10737418240);
CREATE TABLE config (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE dependency (
  needed INTEGER NOT NULL,
  job    INTEGER NOT NULL,
  any    INTEGER NOT NULL,
  PRIMARY KEY (needed, job)
) WITHOUT ROWID;
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
CREATE TABLE environment (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  digest BLOB NOT NULL UNIQUE,
  block  BLOB NOT NULL
);
INSERT INTO "environment" VALUES(1,X'00',X'484F4D453D2F00');
CREATE TABLE job (
  id            INTEGER PRIMARY KEY,
  command       BLOB NOT NULL,
  class         INTEGER NOT NULL REFERENCES class (id),
  priority      INTEGER NOT NULL DEFAULT 0,
  rank          INTEGER NOT NULL DEFAULT 0,
  state         TEXT NOT NULL,
  attempt       INTEGER NOT NULL DEFAULT 0,  -- attempts claimed so far
  slots         TEXT,                        -- where it runs: '0', '0+1', or '0,1' for two slots
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
  gpu_use       TEXT                         -- what it used of its GPUs: JSON, if it was seen at all
);
INSERT INTO "job" VALUES(1,X'747261696E2061',1,0,65536,'running',1,'0',77,1700000001000000,NULL,NULL,NULL,NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES(2,X'747261696E2062',1,0,131072,'waiting',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES(3,X'747261696E2063',2,5,196608,'waiting',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE kind (
  name          TEXT PRIMARY KEY,
  jobs          INTEGER NOT NULL,
  mean_s        REAL NOT NULL,
  learned_at_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE need (
  job         INTEGER PRIMARY KEY,
  ooms        INTEGER NOT NULL,
  bytes       INTEGER,
  alone       INTEGER NOT NULL,              -- 1: on a GPU of its own
  above_bytes INTEGER NOT NULL               -- on a GPU with more than this
);
CREATE TABLE profile (
  kind          TEXT NOT NULL,
  model         TEXT NOT NULL,
  facts         BLOB NOT NULL,
  learned_at_us INTEGER NOT NULL,
  PRIMARY KEY (kind, model)
) WITHOUT ROWID;
CREATE TABLE reservation (
  job      INTEGER NOT NULL,
  number   INTEGER NOT NULL,
  bytes    INTEGER NOT NULL,
  cold     INTEGER NOT NULL,                 -- 1: the whole GPU, for nothing is known of its kind
  PRIMARY KEY (job, number)
) WITHOUT ROWID;
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
INSERT INTO "submission" VALUES(1,'request-1',1,3,3,1700000000000000,1,X'2F776F726B',NULL,NULL,NULL,NULL,'ann','box',0);
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
CREATE TABLE tally (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "tally" VALUES('last_id',3);
INSERT INTO "tally" VALUES('running',1);
INSERT INTO "tally" VALUES('waiting',2);
CREATE INDEX job_waiting ON job (class, priority DESC, rank, id) WHERE state = 'waiting';
CREATE INDEX job_order ON job (priority DESC, rank, id) WHERE state = 'waiting';
CREATE INDEX job_undone ON job (state, id) WHERE reason IS NOT NULL;
CREATE INDEX job_begin ON job (begin_at_us) WHERE begin_at_us IS NOT NULL AND state = 'delayed';
CREATE INDEX job_forced ON job (id) WHERE forced IS NOT NULL;
CREATE INDEX job_special ON job (id) WHERE options IS NOT NULL AND state = 'waiting';
CREATE INDEX job_name ON job (name, id) WHERE name IS NOT NULL;
CREATE INDEX job_ended ON job (ended_at_us, id) WHERE submission IS NOT NULL AND ended_at_us IS NOT NULL;
CREATE INDEX dependency_of ON dependency (job);
CREATE INDEX sweep_run_sweep ON sweep_run (sweep, job);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('environment',1);
INSERT INTO "sqlite_sequence" VALUES('submission',1);
COMMIT;
PRAGMA user_version = 4;
PRAGMA application_id = 1400139627;
