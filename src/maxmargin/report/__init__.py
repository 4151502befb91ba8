"""What users see of a fit: progress, plots and the report."""
