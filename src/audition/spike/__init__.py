"""The spike file: its model, its parsing with line numbers, its annotated reference. Pure, except for reading the file."""
