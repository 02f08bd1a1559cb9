"""The SQLite database: schema, all SQL, one writer."""
