"""From a sweep as people write it to the runs it means: files and inline words, one grammar."""
