"""Programs to read and run; `plait demo` runs the first of them, quickstart."""
