"""The open table: where frames and disk meet."""
