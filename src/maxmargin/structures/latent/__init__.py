"""The class of a bag of feature rows, one of which shows it: a latent variable."""
