-- A job's `state` moves only as core/lifecycle.py's table says: every UPDATE of it names the states
-- it may come from, so that the database refuses what the table does not know.

CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;

-- Jobs that ask for the same are one class: the queue is searched class by class.
CREATE TABLE class (
  id        INTEGER PRIMARY KEY,
  slots     INTEGER NOT NULL,
  timeout_s REAL,
  UNIQUE (slots, timeout_s)
);

-- A job, with its present or last attempt.
CREATE TABLE job (
  id            INTEGER PRIMARY KEY,
  command       BLOB NOT NULL,
  class         INTEGER NOT NULL REFERENCES class (id),
  priority      INTEGER NOT NULL DEFAULT 0,
  rank          INTEGER NOT NULL DEFAULT 0,
  state         TEXT NOT NULL CHECK (state IN
                ('waiting', 'starting', 'running', 'done', 'failed', 'killed', 'lost')),
  attempt       INTEGER NOT NULL DEFAULT 0,  -- attempts claimed so far
  slots         TEXT,                        -- where it runs: '0' or '0+1'
  pid           INTEGER,
  started_at_us INTEGER,                     -- microseconds of the Unix epoch, as all times
  ended_at_us   INTEGER,
  status        INTEGER,                     -- wait status; NULL if there never was a process
  reason        TEXT,
  cpu_us        INTEGER,
  max_rss_kb    INTEGER
);
CREATE INDEX job_waiting ON job (class, priority DESC, rank, id) WHERE state = 'waiting';

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
  PRIMARY KEY (job, number)
) WITHOUT ROWID;
