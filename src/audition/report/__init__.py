"""Records for people: texts made from a Result by pure functions, and one writer. No statistics and no verdict here."""
