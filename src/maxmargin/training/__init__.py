"""Where a fit runs, and from what: memory, sources, workers."""
