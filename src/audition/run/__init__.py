"""Effects: the conductor and what it needs (journal file, run folder, guard, measuring). Decisions live in the pure rooms."""
