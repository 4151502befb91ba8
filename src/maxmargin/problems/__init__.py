"""What is predicted, and what is minimised."""
