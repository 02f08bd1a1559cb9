-- A job's `state` moves only as core/lifecycle.py's table says: every UPDATE of it names the states
-- it may come from, so that the database refuses what the table does not know.

CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- Jobs that ask for the same are one class: the queue is searched class by class.
CREATE TABLE class (
  id        INTEGER PRIMARY KEY,
  slots     INTEGER NOT NULL,
  timeout_s REAL,
  UNIQUE (slots, timeout_s)
);

CREATE TABLE job (
  id         INTEGER PRIMARY KEY,
  command    BLOB NOT NULL,
  class      INTEGER NOT NULL REFERENCES class (id),
  priority   INTEGER NOT NULL DEFAULT 0,
  rank       INTEGER NOT NULL DEFAULT 0,
  state      TEXT NOT NULL CHECK (state IN
             ('waiting', 'starting', 'running', 'done', 'failed', 'killed', 'lost')),
  attempt    INTEGER NOT NULL DEFAULT 0,  -- attempts claimed so far
  slots      TEXT,                        -- where the present or last attempt runs: '0' or '0+1'
  pid        INTEGER,
  started_at_us INTEGER                   -- microseconds of the Unix epoch, as all times
);
CREATE INDEX job_waiting ON job (class, priority DESC, rank, id) WHERE state = 'waiting';

-- One row for each attempt that is over.
CREATE TABLE attempt (
  job        INTEGER NOT NULL REFERENCES job (id),
  number     INTEGER NOT NULL,
  outcome    TEXT NOT NULL,
  status     INTEGER,                     -- wait status; NULL if there never was a process
  reason     TEXT,
  slots      TEXT,
  pid        INTEGER,
  started_at_us INTEGER,
  ended_at_us   INTEGER,
  cpu_us     INTEGER,
  max_rss_kb INTEGER,
  PRIMARY KEY (job, number)
) WITHOUT ROWID;
