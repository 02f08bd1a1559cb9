-- The database of a foreground run as the first schema left it: one job in each situation that a
-- resume meets. Written by that version itself, and never to be changed.
BEGIN TRANSACTION;
CREATE TABLE class (
  id        INTEGER PRIMARY KEY,
  slots     INTEGER NOT NULL,
  timeout_s REAL,
  UNIQUE (slots, timeout_s)
);
INSERT INTO class VALUES(1,1,NULL);
INSERT INTO class VALUES(2,1,60.0);
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
INSERT INTO earlier_attempt VALUES(2,1,'failed','1',102,1700000001000000,1700000002000000,256,'exit 1',1,2);
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
INSERT INTO job VALUES(1,X'6563686F20646F6E65',1,0,0,'done',1,'0',101,1700000000000000,1700000001000000,0,NULL,5000,2048);
INSERT INTO job VALUES(2,X'66616C7365',1,0,0,'failed',2,'0',103,1700000002000000,1700000003000000,256,'exit 1',1,2);
INSERT INTO job VALUES(3,X'6563686F20FFFE',2,0,0,'starting',1,'0+1',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO job VALUES(4,X'736C65657020313030',1,0,0,'running',1,'1',104,1700000004000000,NULL,NULL,NULL,NULL,NULL);
INSERT INTO job VALUES(5,X'6563686F206C61746572',1,3,0,'waiting',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES('cwd',X'2F776F726B');
INSERT INTO meta VALUES('file',X'6A6F62732E747874');
CREATE INDEX job_waiting ON job (class, priority DESC, rank, id) WHERE state = 'waiting';
PRAGMA user_version = 1;
PRAGMA application_id = 1400139627;
COMMIT;
