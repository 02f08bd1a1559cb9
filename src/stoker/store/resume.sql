-- What a resumed run needs to tell equal commands apart: by their order, in the record and as read.
-- Temporary tables, on disk if they grow: a million commands are not held in memory.

CREATE TEMP TABLE seen (
  command BLOB PRIMARY KEY,
  times   INTEGER NOT NULL               -- how often it was read in this run so far
) WITHOUT ROWID;

CREATE TEMP TABLE earlier (
  command    BLOB,
  occurrence INTEGER,                    -- which one among equal commands, from 1
  id         INTEGER,
  state      TEXT,
  attempt    INTEGER,
  PRIMARY KEY (command, occurrence)
) WITHOUT ROWID;

INSERT INTO earlier
SELECT command, row_number() OVER (PARTITION BY command ORDER BY id), id, state, attempt FROM job;
