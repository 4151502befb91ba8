"""Two classes, trained for a measure of the whole data set."""
